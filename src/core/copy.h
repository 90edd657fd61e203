// Moving bytes: between host and device, and filling. In a recording nothing is touched.
#pragma once
#include "core/run.h"

namespace flashgpt {

// Host memory -> contiguous tensor, tensor -> host memory; src / dst hold t.bytes() bytes. Finished when they return.
void upload(Context& ctx, const Tensor& t, const void* src);
void download(Context& ctx, const Tensor& t, void* dst);

struct Fill {  // every element of a contiguous fp32 tensor (or bytes 0 for any dtype)
  Tensor y;
  float value = 0;
  static constexpr const char* kName = "fill";
  template <class V> void fields(V& v) const { v.out("y", y); }
};
void check(const Fill& op);
void launch(CpuStream s, const Fill& op, Scratch);
void launch(CudaStream s, const Fill& op, Scratch);

}  // namespace flashgpt
