// Block-sparse masks: which blocks of keys a block of queries sees (BlockLists in attention.h), read, checked and made.
//
// The same lists serve every sequence when its lengths are those of the spec; with sequences of different lengths a causal pattern must be
// made for each, since the last query stands beside the last key.
#pragma once
#include <cstdint>
#include <vector>

#include "attention/attention.h"
#include "attention/mask.h"

namespace flashgpt::attention {

enum class Seen : std::uint8_t { kNone, kPartial, kFull };

// The lists of an op on the CPU. An absent list is empty.
struct BlockView {
  struct List {
    const std::int32_t *count = nullptr, *index = nullptr;
    Index batch_stride = 0, head_stride = 0, room = 0;  // strides in rows of blocks
    const std::int32_t* begin(Index b, Index h, Index row) const { return index + (b * batch_stride + h * head_stride + row) * room; }
    Index size(Index b, Index h, Index row) const { return count ? count[b * batch_stride + h * head_stride + row] : 0; }
  };
  List full, partial;
  Index block_q = 0, block_k = 0;

  explicit operator bool() const { return block_q > 0; }
  Seen seen(Index b, Index h, Index q_block, Index k_block) const;
};

BlockView block_view(const BlockLists& lists, const AttentionSpec& spec);

// Throws where a list is not rising, leaves the blocks that there are, or shares one with the other list. Follows the pointers: CPU only.
void check_blocks(const BlockLists& lists, const AttentionSpec& spec);

// Lists with memory of their own, for the CPU; copy them for a GPU.
struct OwnedBlocks {
  std::vector<std::int32_t> full_count, full_index, partial_count, partial_index;
  Index batch = 1, heads = 1, rows = 0, columns = 0;  // blocks
  BlockLists lists();
};

// From what is seen of each block, [batch][heads][rows][columns].
OwnedBlocks make_blocks(Index batch, Index heads, Index rows, Index columns, const std::vector<Seen>& seen);

// spec's mask (causal, window) as blocks of spec.block_q by spec.block_k, for sequences of len_q and len_k: blocks wholly seen are full.
OwnedBlocks blocks_of_mask(const AttentionSpec& spec, Index len_q, Index len_k);

// The usual sparse pattern (Child et al., 2019; Beltagy et al., 2020; Zaheer et al., 2020): of the blocks that spec's mask lets through, a
// block of queries keeps those that are near its own, the first ones, and every stride-th.
struct SparsePattern {
  Index local = 1;   // blocks of keys around the block's own position, itself included; causal: the last `local` up to it
  Index global = 0;  // first blocks of keys, seen by all
  Index stride = 0;  // 0: none
};
OwnedBlocks sparse_blocks(const AttentionSpec& spec, Index len_q, Index len_k, const SparsePattern& pattern);

// By block of keys what `blocks` says by block of queries.
OwnedBlocks transposed(const OwnedBlocks& blocks);

}  // namespace flashgpt::attention
