// P and dS of the backward from S = Q K^T and dP = dO V^T, element by element.
//   P = 2^(score log2(e) - lse log2(e))      dS = P (dP - delta) score'
// score' without the factor gradient_scale, which dq and dk get at the end.
#pragma once
#include "attention/sm80/features.cuh"

namespace flashgpt::attention::sm80 {

// The scores of a thread: piece r of 16 rows and j of 8 columns holds rows row + 16 r (+ 8) and columns column + 8 j (+ 1).
struct Position {
  int row, column;  // of the sequence
  int shift, len_k;
  float slope;  // times log2(e)
  int len_q;
  unsigned sequence_head;
};

// lse2 and delta of the thread's rows come from shared memory: row + 16 r + 8 half lies 4 (16 r + 8 half) bytes behind the address.
template <Variant C, bool Masked, int R, int J>
DEVICE void weights(const Arguments& a, const Position& at, uint32_t lse2_address, uint32_t delta_address, const BlockTable& table,
                    float (&s)[R][J][4], float (&dp)[R][J][4]) {
  const float linear = a.scale * kLog2e, cap = a.softcap * kLog2e;
unsigned keep[R][J / 2];
  if constexpr (C.dropout) keep_bits<R, J>(a, at.sequence_head, at.row, at.column, keep);
  const float kept = C.dropout ? dropout_scale(a.dropout_threshold) : 1.0f;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float lse2 = load_shared(lse2_address + 4 * (16 * r + 8 * half)), delta = load_shared(delta_address + 4 * (16 * r + 8 * half));
      const int row = at.row + 16 * r + 8 * half;
      const Seen seen = keys_of_query<C.left>(a, row, at.shift, at.len_k);
      const int low = seen.low - at.column, high = seen.high - at.column, distance = at.column - row - at.shift;
#pragma unroll
      for (int j = 0; j < J; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float &x = s[r][j][2 * half + e], &y = dp[r][j][2 * half + e];
          float derivative = 1.0f, exponent;
          if constexpr (C.softcap) {
            const float t = tanh_exact(x * a.scale);
            derivative = 1.0f - t * t;
            exponent = cap * t - lse2;
          } else {
            exponent = x * linear - lse2;
          }
          if constexpr (C.alibi) {
            const int d = distance + 8 * j + e;
            exponent -= at.slope * static_cast<float>(d < 0 ? -d : d);
          }
          float p = ex2(exponent);
          const bool masked = Masked && (8 * j + e >= high || (C.left && 8 * j + e < low));
          if constexpr (C.blocks) {
            const int column = at.column + 8 * j + e;
            if (row >= at.len_q || column >= at.len_k || !table.sees(a, row, column, masked)) p = 0.0f;
          } else if (masked) {
            p = 0.0f;
          }
          if constexpr (C.dropout) {
            const float z = is_kept(keep, r, half, j, e) ? kept : 0.0f;
            x = p * z;
            y = p * (y * z - delta);
          } else {
            x = p;
            y = p * (y - delta);
          }
          if constexpr (C.softcap) y *= derivative;
        }
    }
}

// Whether a pair of keys [key, key + keys) and queries [row, row + rows) may not see each other.
template <bool Left> DEVICE bool needs_mask(const Arguments& a, int row, int rows, int key, int keys, int shift, int len_k) {
  return key + keys > keys_of_query<Left>(a, row, shift, len_k).high ||
         (Left && key < keys_of_query<Left>(a, row + rows - 1, shift, len_k).low);
}

DEVICE Int64 stats_row(const Arguments& a, const Item& item, const Lengths& n, int head) {
  return head * a.total_q + (a.varlen ? n.q_first : Int64{item.sequence} * a.max_q);
}

}  // namespace flashgpt::attention::sm80
