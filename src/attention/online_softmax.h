// device: shared
// The state of a softmax over part of the keys, and how parts are merged: what makes tiled attention, split-KV and context parallelism
// exact. For scores s_j:  max = max s_j,  sum = sum exp(s_j - max).  An output that belongs to the part is scaled by exp(max - new max)
// when the maximum rises. A part that saw nothing has max = -inf, sum = 0, and is neutral.
#pragma once
#include "core/host_device.h"

namespace flashgpt::attention {

template <class T> struct SoftmaxState {
  T max = -infinity_of<T>();
  T sum = 0;
};

// What the two parts' outputs (not yet divided by the sum) are multiplied with to add them up.
template <class T> struct MergeFactors {
  T a;
  T b;
};

// exp(x - max), where max = -inf means that nothing was seen: then 0. NaN stays NaN.
template <class T> FLASHGPT_HD T exp_shifted(T x, T max) {
  const T shift = max == -infinity_of<T>() ? static_cast<T>(0) : max;
  return exp_of(x - shift);
}

template <class T> FLASHGPT_HD MergeFactors<T> merge(SoftmaxState<T>& a, const SoftmaxState<T>& b) {
  const T max = b.max > a.max ? b.max : a.max;
  const MergeFactors<T> f{exp_shifted(a.max, max), exp_shifted(b.max, max)};
  a = {max, a.sum * f.a + b.sum * f.b};
  return f;
}

template <class T> FLASHGPT_HD void add(SoftmaxState<T>& a, T score) { merge(a, SoftmaxState<T>{score, 1}); }

// log(sum exp(s_j)); -inf when nothing was seen.
template <class T> FLASHGPT_HD T log_sum_exp(const SoftmaxState<T>& s) { return s.sum == 0 ? -infinity_of<T>() : s.max + log_of(s.sum); }

// Outputs that are divided already, with their lse, are merged with weights exp(lse - total); total is returned. Both -inf: weights 0.
template <class T> FLASHGPT_HD T merge_normalised(T lse_a, T lse_b, MergeFactors<T>& weights) {
  SoftmaxState<T> s{lse_a, lse_a == -infinity_of<T>() ? static_cast<T>(0) : static_cast<T>(1)};
  merge(s, SoftmaxState<T>{lse_b, lse_b == -infinity_of<T>() ? static_cast<T>(0) : static_cast<T>(1)});
  const T total = log_sum_exp(s);
  weights = {exp_shifted(lse_a, total), exp_shifted(lse_b, total)};
  return total;
}

}  // namespace flashgpt::attention
