// What the checks of all ops have in common: shapes, types and packed memory, with an error that names the op and the tensor.
#pragma once
#include "core/run.h"
#include "core/step_scalars.h"

namespace flashgpt {

// Given, though it may be empty: an empty tensor has a shape and no address.
inline bool given(const Tensor& t) { return t.data != nullptr || t.rank() > 0; }

inline void expect(const char* op, const char* name, const Tensor& t, Shape shape, Dtype dtype = Dtype::kF32) {
  require(given(t), op, ": ", name, " is missing, expected ", name_of(dtype), " ", shape.str());
  require(t.shape == shape, op, ": ", name, " has shape ", t.shape.str(), ", expected ", shape.str());
  require(t.dtype == dtype, op, ": ", name, " is ", name_of(t.dtype), ", expected ", name_of(dtype));
  require(t.contiguous(), op, ": ", name, " of shape ", t.shape.str(), " is strided, expected rows without gaps");
}

// The same for a tensor that may be absent.
inline void expect_if_given(const char* op, const char* name, const Tensor& t, Shape shape, Dtype dtype = Dtype::kF32) {
  if (given(t)) expect(op, name, t, shape, dtype);
}

inline void expect_rank(const char* op, const char* name, const Tensor& t, int rank) {
  require(t.rank() == rank, op, ": ", name, " has shape ", t.shape.str(), ", expected ", rank, rank == 1 ? " dimension" : " dimensions");
}

// The numbers of the step travel as the bytes of a StepScalars.
inline void expect_scalars(const char* op, const Tensor& t) {
  expect(op, "scalars", t, {static_cast<std::int64_t>(sizeof(StepScalars))}, Dtype::kU8);
}
inline StepScalars& scalars_of(const Tensor& t) { return *reinterpret_cast<StepScalars*>(t.as<std::uint8_t>()); }

template <class T> T* data_or_null(const Tensor& t) { return t.data ? t.as<T>() : nullptr; }

}  // namespace flashgpt
