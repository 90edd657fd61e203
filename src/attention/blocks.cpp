#include "attention/blocks.h"

#include <algorithm>

namespace flashgpt::attention {
namespace {

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

BlockView::List list_of(const Tensor& count, const Tensor& index) {
  if (!count.data) return {};
  const Index rows = count.dim(2), heads = count.dim(1);
  return {static_cast<const std::int32_t*>(count.data), static_cast<const std::int32_t*>(index.data), count.dim(0) == 1 ? 0 : heads * rows,
          heads == 1 ? 0 : rows, index.dim(3)};
}

void check_list(const char* name, const BlockView::List& list, const Tensor& count, Index blocks) {
  if (!list.count) return;
  for (Index n = 0; n < count.numel(); ++n) {
    const Index size = list.count[n];
    require(size >= 0 && size <= list.room, "attention: blocks.", name, "_count[", n, "] = ", size, ", expected 0 to ", list.room);
    Index last = -1;
    for (Index i = 0; i < size; ++i) {
      const Index block = list.index[n * list.room + i];
      require(block > last && block < blocks, "attention: blocks.", name, "_index[", n, "][", i, "] = ", block, ", expected a block above ",
              last, " and below ", blocks);
      last = block;
    }
  }
}

bool contains(const BlockView::List& list, Index b, Index h, Index row, Index block) {
  const Index size = list.size(b, h, row);
  if (size == 0) return false;
  const std::int32_t* first = list.begin(b, h, row);
  return std::binary_search(first, first + size, static_cast<std::int32_t>(block));
}

Mask mask_of(const AttentionSpec& spec) { return {spec.window_left, spec.causal ? 0 : spec.window_right}; }

// What the mask lets through of a block.
Seen seen_by_mask(const AttentionSpec& spec, Index len_q, Index len_k, Index row, Index column) {
  const Index q0 = row * spec.block_q, q1 = std::min(q0 + spec.block_q, len_q);
  const Index k0 = column * spec.block_k, k1 = std::min(k0 + spec.block_k, len_k);
  if (q0 >= q1 || k0 >= k1) return Seen::kNone;
  const Mask mask = mask_of(spec);
  const Range any = keys_of(mask, q0, q1, len_q, len_k), all = keys_of_all(mask, q0, q1, len_q, len_k);
  if (any.first >= k1 || any.last <= k0) return Seen::kNone;
  return all.first <= k0 && all.last >= k1 ? Seen::kFull : Seen::kPartial;
}

}  // namespace

Seen BlockView::seen(Index b, Index h, Index q_block, Index k_block) const {
  if (contains(full, b, h, q_block, k_block)) return Seen::kFull;
  return contains(partial, b, h, q_block, k_block) ? Seen::kPartial : Seen::kNone;
}

BlockView block_view(const BlockLists& lists, const AttentionSpec& spec) {
  if (!spec.block_mask) return {};
  return {list_of(lists.full_count, lists.full_index), list_of(lists.partial_count, lists.partial_index), spec.block_q, spec.block_k};
}

void check_blocks(const BlockLists& lists, const AttentionSpec& spec) {
  if (!spec.block_mask) return;
  const BlockView v = block_view(lists, spec);
  const Index columns = ceil_div(spec.max_k, spec.block_k), rows = ceil_div(spec.max_q, spec.block_q);
  check_list("full", v.full, lists.full_count, columns);
  check_list("partial", v.partial, lists.partial_count, columns);
  if (!v.full.count || !v.partial.count) return;
  const Index batch = std::max(lists.full_count.dim(0), lists.partial_count.dim(0)),
              heads = std::max(lists.full_count.dim(1), lists.partial_count.dim(1));
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index row = 0; row < rows; ++row)
        for (Index i = 0; i < v.partial.size(b, h, row); ++i) {
          const Index block = v.partial.begin(b, h, row)[i];
          require(!contains(v.full, b, h, row, block), "attention: block ", block, " of row ", row, " of head ", h, " of sequence ", b,
                  " is in blocks.full_index and in blocks.partial_index, expected in one of them");
        }
}

BlockLists OwnedBlocks::lists() {
  auto tensor = [](std::vector<std::int32_t>& v, Shape shape) { return Tensor(v.data(), shape, Dtype::kI32); };
  const Shape counts{batch, heads, rows}, indices{batch, heads, rows, columns};
  return {tensor(full_count, counts), tensor(partial_count, counts), tensor(full_index, indices), tensor(partial_index, indices)};
}

OwnedBlocks make_blocks(Index batch, Index heads, Index rows, Index columns, const std::vector<Seen>& seen) {
  const Index lists = batch * heads * rows;
  require(static_cast<Index>(seen.size()) == lists * columns, "make_blocks: seen has ", seen.size(), " blocks, expected ", lists * columns);
  OwnedBlocks o;
  o.batch = batch, o.heads = heads, o.rows = rows, o.columns = columns;
  o.full_count.assign(static_cast<std::size_t>(lists), 0);
  o.partial_count = o.full_count;
  o.full_index.assign(seen.size() + 1, 0);  // never without an address
  o.partial_index = o.full_index;
  for (Index n = 0; n < lists; ++n)
    for (Index c = 0; c < columns; ++c) {
      const Seen s = seen[static_cast<std::size_t>(n * columns + c)];
      if (s == Seen::kNone) continue;
      auto& count = (s == Seen::kFull ? o.full_count : o.partial_count)[static_cast<std::size_t>(n)];
      (s == Seen::kFull ? o.full_index : o.partial_index)[static_cast<std::size_t>(n * columns + count)] = static_cast<std::int32_t>(c);
      ++count;
    }
  return o;
}

OwnedBlocks blocks_of_mask(const AttentionSpec& spec, Index len_q, Index len_k) {
  const Index rows = ceil_div(spec.max_q, spec.block_q), columns = ceil_div(spec.max_k, spec.block_k);
  std::vector<Seen> seen;
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c) seen.push_back(seen_by_mask(spec, len_q, len_k, r, c));
  return make_blocks(1, 1, rows, columns, seen);
}

OwnedBlocks sparse_blocks(const AttentionSpec& spec, Index len_q, Index len_k, const SparsePattern& pattern) {
  const Index rows = ceil_div(spec.max_q, spec.block_q), columns = ceil_div(spec.max_k, spec.block_k);
  const Index before = spec.causal ? pattern.local - 1 : (pattern.local - 1) / 2, after = spec.causal ? 0 : pattern.local / 2;
  std::vector<Seen> seen;
  for (Index r = 0; r < rows; ++r) {
    const Index shift = len_k - len_q, first = r * spec.block_q + shift, last = std::min((r + 1) * spec.block_q, len_q) - 1 + shift;
    auto block_at = [&](Index position) { return position < 0 ? -1 : position / spec.block_k; };
    for (Index c = 0; c < columns; ++c) {
      const bool near = c >= block_at(first) - before && c <= block_at(last) + after;
      const bool kept = near || c < pattern.global || (pattern.stride > 0 && c % pattern.stride == pattern.stride - 1);
      seen.push_back(kept ? seen_by_mask(spec, len_q, len_k, r, c) : Seen::kNone);
    }
  }
  return make_blocks(1, 1, rows, columns, seen);
}

OwnedBlocks transposed(const OwnedBlocks& blocks) {
  std::vector<Seen> seen(static_cast<std::size_t>(blocks.batch * blocks.heads * blocks.rows * blocks.columns), Seen::kNone);
  for (Index n = 0; n < blocks.batch * blocks.heads; ++n)
    for (Index r = 0; r < blocks.rows; ++r) {
      const auto row = static_cast<std::size_t>(n * blocks.rows + r);
      auto mark = [&](std::int32_t count, const std::vector<std::int32_t>& index, Seen s) {
        for (std::int32_t i = 0; i < count; ++i) {
          const Index c = index[row * static_cast<std::size_t>(blocks.columns) + static_cast<std::size_t>(i)];
          seen[static_cast<std::size_t>((n * blocks.columns + c) * blocks.rows + r)] = s;
        }
      };
      mark(blocks.full_count[row], blocks.full_index, Seen::kFull);
      mark(blocks.partial_count[row], blocks.partial_index, Seen::kPartial);
    }
  return make_blocks(blocks.batch, blocks.heads, blocks.columns, blocks.rows, seen);
}

}  // namespace flashgpt::attention
