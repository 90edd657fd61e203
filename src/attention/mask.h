// device: shared
// Which keys a query sees, defined once for all implementations, host and device.
//
// Query i of len_q stands at position i + len_k - len_q of the keys (bottom-right alignment): the last query beside the last key. It sees
// key j when   position - left <= j <= position + right   and 0 <= j < len_k; a negative bound means no limit. Causal is right = 0.
#pragma once
#include "core/host_device.h"

namespace flashgpt::attention {

using Index = Int64;

struct Mask {
  Index left = -1;
  Index right = -1;
};

struct Range {  // [first, last); empty when last <= first
  Index first = 0;
  Index last = 0;
};

FLASHGPT_HD bool visible(const Mask& m, Index i, Index j, Index len_q, Index len_k) {
  const Index distance = j - (i + len_k - len_q);
  return (m.left < 0 || -distance <= m.left) && (m.right < 0 || distance <= m.right);
}

FLASHGPT_HD Range clamp_range(Index first, Index last, Index length) { return {first < 0 ? 0 : first, last > length ? length : last}; }

// Keys that at least one of the queries [first, last) sees. For a single query: the keys it sees, without holes.
FLASHGPT_HD Range keys_of(const Mask& m, Index first, Index last, Index len_q, Index len_k) {
  const Index shift = len_k - len_q;
  return clamp_range(m.left < 0 ? 0 : first + shift - m.left, m.right < 0 ? len_k : last + shift + m.right, len_k);
}

// Keys that every one of the queries [first, last) sees.
FLASHGPT_HD Range keys_of_all(const Mask& m, Index first, Index last, Index len_q, Index len_k) {
  const Index shift = len_k - len_q;
  return clamp_range(m.left < 0 ? 0 : last - 1 + shift - m.left, m.right < 0 ? len_k : first + 1 + shift + m.right, len_k);
}

// Queries that see at least one of the keys [first, last).
FLASHGPT_HD Range queries_of(const Mask& m, Index first, Index last, Index len_q, Index len_k) {
  const Index shift = len_k - len_q;
  return clamp_range(m.right < 0 ? 0 : first - shift - m.right, m.left < 0 ? len_q : last - shift + m.left, len_q);
}

}  // namespace flashgpt::attention
