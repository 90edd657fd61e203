// device: shared
// For headers that host code and NVRTC both compile: the annotation of their functions, and the few types and functions of the C++ library
// that they use. NVRTC gets no include path, so such headers include only this one and each other.
#pragma once

#ifdef __CUDACC_RTC__

#define FLASHGPT_HD __host__ __device__ __forceinline__
#define FLASHGPT_MATH

namespace flashgpt {
using Int64 = long long;
template <class T> FLASHGPT_HD T infinity_of() { return static_cast<T>(__int_as_float(0x7f800000)); }
}  // namespace flashgpt

#else

#include <cmath>
#include <cstdint>
#include <limits>
#define FLASHGPT_HD inline
#define FLASHGPT_MATH std

namespace flashgpt {
using Int64 = std::int64_t;
template <class T> constexpr T infinity_of() { return std::numeric_limits<T>::infinity(); }
}  // namespace flashgpt

#endif

namespace flashgpt {

FLASHGPT_HD float tanh_of(float x) { return FLASHGPT_MATH::tanh(x); }
FLASHGPT_HD double tanh_of(double x) { return FLASHGPT_MATH::tanh(x); }
FLASHGPT_HD float exp_of(float x) { return FLASHGPT_MATH::exp(x); }
FLASHGPT_HD double exp_of(double x) { return FLASHGPT_MATH::exp(x); }
FLASHGPT_HD double exp2_of(double x) { return FLASHGPT_MATH::exp2(x); }
FLASHGPT_HD float log_of(float x) { return FLASHGPT_MATH::log(x); }
FLASHGPT_HD double log_of(double x) { return FLASHGPT_MATH::log(x); }

}  // namespace flashgpt

#undef FLASHGPT_MATH
