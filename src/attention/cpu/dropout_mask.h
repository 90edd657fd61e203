// Which weights dropout keeps, for the lanes of a group and the keys of a block (core/philox.h says which). A Philox block serves 4 queries
// and 4 keys, so the lanes are sorted into units first: lanes of one head whose queries share blocks.
#pragma once
#include "attention/cpu/score_vec.h"
#include "core/philox.h"

namespace flashgpt::attention::cpu {

template <int W> struct DropoutUnits {
  struct Unit {
    unsigned sequence_head, query_group;
    std::int32_t lane[4];  // by place in the group; -1: none
  };
  Unit unit[kGroup<W>];
  int count = 0;

  // Lanes are rows [first, first + rows) of the queries (QueryRows).
  void fill(const Problem& p, const Sequence& s, Index kv, Index first, Index rows) {
    count = 0;
    for (Index lane = 0; lane < rows; ++lane) {
      const Index r = first + lane, i = r / p.group;
      const unsigned head = p.sequence_head(s.index, kv * p.group + r % p.group), group = dropout_group(i);
      int u = 0;
      while (u < count && (unit[u].sequence_head != head || unit[u].query_group != group)) ++u;
      if (u == count) unit[count++] = {head, group, {-1, -1, -1, -1}};
      unit[u].lane[dropout_place(i)] = static_cast<std::int32_t>(lane);
    }
  }
};

// keep[key][lane] = all ones or zero for keys [first, last) of a block that begins at key0 of the sequence. Lanes in no unit: anything.
template <int W>
inline void fill_dropout(std::int32_t* keep, const DropoutUnits<W>& units, const Dropout& d, Index key0, Index first, Index last) {
  const Index begin = key0 + first, end = key0 + last;
  for (Index block = begin / 16 * 16; block < end; block += 16)
    for (Index b = 0; b < 4; ++b) {
      const Index pair = block + 2 * b;  // keys pair, pair + 1, pair + 8, pair + 9
      if (pair + 9 < begin || pair >= end) continue;
      for (int u = 0; u < units.count; ++u) {
        const auto& unit = units.unit[u];
        const PhiloxBlock random = dropout_block(d, unit.sequence_head, unit.query_group, dropout_group(pair));
        for (int place = 0; place < 4; ++place) {
          const std::int32_t lane = unit.lane[place];
          if (lane < 0) continue;
          const unsigned word = random[place];
          for (int c = 0; c < 4; ++c) {
            const Index key = pair + (c & 1) + 8 * (c >> 1);
            if (key < begin || key >= end) continue;
            keep[(key - key0) * kGroup<W> + lane] = (word >> (8 * c) & 255u) >= d.threshold ? -1 : 0;
          }
        }
      }
    }
}

// x[key][lane] = 0 where dropped.
struct DropWeights {
  template <int W> [[gnu::always_inline]] static void run(float* x, Index x_step, const std::int32_t* keep, Index first, Index last) {
    for (Index j = first; j < last; ++j)
      for (int n = 0; n < 2; ++n) {
        I<W> mask;
        __builtin_memcpy(&mask, keep + j * kGroup<W> + n * W, sizeof mask);
        float* at = x + j * x_step + n * W;
        store<W>(at, mask ? load<W>(at) : F<W>{});
      }
  }
};

}  // namespace flashgpt::attention::cpu
