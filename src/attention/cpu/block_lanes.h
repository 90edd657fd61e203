// Block-sparse masks for the lanes of the tiles: what a group of rows sees of a segment, the keys [first, last) of one block of keys.
#pragma once
#include "attention/cpu/score_vec.h"

namespace flashgpt::attention::cpu {

// End of the segment that begins at `key`: keys of a segment share their block in the lists.
inline Index segment_end(const Problem& p, Index key, Index limit) {
  return p.blocks ? std::min(limit, (key / p.blocks.block_k + 1) * p.blocks.block_k) : limit;
}

// `mask`: what the lanes would see without lists. False when no lane sees a key of the segment; else `out` says what they see of it.
template <int W> inline bool block_lanes(LaneInfo<W>& out, const LaneInfo<W>& mask, const Problem& p, const Sequence& s, Index kv,
                                         Index row0, Index rows, Index first, Index last) {
  const BlockView& blocks = p.blocks;
  const Index k_block = first / blocks.block_k;
  const bool one_list = p.group == 1 || (blocks.full.head_stride == 0 && blocks.partial.head_stride == 0);
  const Index first_block = row0 / p.group / blocks.block_q, last_block = (row0 + rows - 1) / p.group / blocks.block_q;
  auto clip = [&] {
    out.see_any_first = std::max(out.see_any_first, first);
    out.see_any_last = std::min(out.see_any_last, last);
    out.see_all_last = std::min(out.see_all_last, last);
  };
  const auto low = static_cast<std::int32_t>(first), high = static_cast<std::int32_t>(last - 1);
  if (one_list && first_block == last_block) {
    const Seen seen = blocks.seen(s.index, kv * p.group, first_block, k_block);
    if (seen == Seen::kNone) return false;
    out = mask;
    if (seen == Seen::kFull) {
      out.see_any_first = out.see_all_first = first;
      out.see_any_last = out.see_all_last = last;
    }
    for (Index lane = 0; lane < kGroup<W>; ++lane) {
      if (seen == Seen::kFull) out.low[lane] = low;
      out.high[lane] = seen == Seen::kFull ? high : std::min(out.high[lane], high);
    }
    clip();
    return out.see_any_first < out.see_any_last;
  }
  out = mask;
  out.see_any_first = first, out.see_any_last = last;
  out.see_all_first = first, out.see_all_last = first;  // nothing is known to be seen by all
  bool some = false;
  for (Index lane = 0; lane < kGroup<W>; ++lane) {
    const Index r = row0 + std::min(lane, rows - 1);
    const Seen seen = blocks.seen(s.index, kv * p.group + r % p.group, r / p.group / blocks.block_q, k_block);
    some |= seen != Seen::kNone;
    if (seen == Seen::kFull) out.low[lane] = low;
    out.high[lane] = seen == Seen::kNone ? -1 : seen == Seen::kFull ? high : std::min(out.high[lane], high);
  }
  return some;
}

}  // namespace flashgpt::attention::cpu
