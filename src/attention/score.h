// device: shared
// The score of a query and a key, with its derivative, defined once for all implementations, host and device.
//
//   x = scale * q.k            softcap c > 0: x = c * tanh(x / c)            ALiBi: x -= slope * |position of the query - j|
//
// The tanh saturates: a score of any size gives a finite value. A new variant is added here, and where the CPU kernels say the same in
// vectors (cpu/score_vec.h).
#pragma once
#include "attention/mask.h"

namespace flashgpt::attention {

// ALiBi's slope of a head, as in the paper (Press et al., 2022): 2^(-8 i / n) for a power of two n, else interleaved.
FLASHGPT_HD float alibi_slope(Index heads, Index head) {
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  const double n = static_cast<double>(power);
  if (head < power) return static_cast<float>(exp2_of(-8.0 * static_cast<double>(head + 1) / n));
  return static_cast<float>(exp2_of(-8.0 * static_cast<double>(2 * (head - power) + 1) / (2 * n)));
}

struct Score {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  float slope = 0.0f;    // of this head; 0: none
};

template <class T> struct ScoreValue {
  T value;
  T derivative;  // with respect to q.k
};

// `distance`: j minus the query's position.
template <class T> FLASHGPT_HD ScoreValue<T> score(const Score& s, T dot, Index distance) {
  const T scale = static_cast<T>(s.scale), cap = static_cast<T>(s.softcap), slope = static_cast<T>(s.slope);
  ScoreValue<T> r{scale * dot, scale};
  if (s.softcap > 0) {
    const T t = tanh_of(r.value / cap);
    r = {cap * t, scale * (1 - t * t)};
  }
  if (s.slope != 0) r.value -= slope * static_cast<T>(distance < 0 ? -distance : distance);
  return r;
}

}  // namespace flashgpt::attention
