// Between host memory and tensors. On the CPU they are the same memory; a GPU's queue does the copy and is waited for.
#include "core/copy.h"

#include <cstring>

#include "core/cuda/api.h"
#include "core/cuda/gpu.h"

namespace flashgpt {
namespace {

void check_copy(const Context& ctx, const char* what, const Tensor& t, const void* host) {
  require(t.contiguous(), what, ": tensor of shape ", t.shape.str(), " is not contiguous");
  require(t.device == ctx.target.device, what, ": tensor lies on another device than the context");
  require(t.numel() == 0 || (t.data && (ctx.recording() || host)), what, ": tensor of shape ", t.shape.str(), " or host address is null");
}

bool on_cpu(const Context& ctx) { return ctx.target.device.kind == DeviceKind::kCpu; }
cuda::Address address(const Tensor& t) { return reinterpret_cast<cuda::Address>(t.data); }

}  // namespace

void upload(Context& ctx, const Tensor& t, const void* src) {
  check_copy(ctx, "upload", t, src);
  if (ctx.recording() || t.bytes() == 0) return;
  if (on_cpu(ctx)) {
    std::memcpy(t.data, src, t.bytes());
  } else {
    cuda::check(cuda::driver().cuMemcpyHtoDAsync_v2(address(t), src, t.bytes(), ctx.cuda.stream), "upload");
    cuda::synchronise(ctx.cuda);
  }
}

void download(Context& ctx, const Tensor& t, void* dst) {
  check_copy(ctx, "download", t, dst);
  if (ctx.recording() || t.bytes() == 0) return;
  if (on_cpu(ctx)) {
    std::memcpy(dst, t.data, t.bytes());
  } else {
    cuda::check(cuda::driver().cuMemcpyDtoHAsync_v2(dst, address(t), t.bytes(), ctx.cuda.stream), "download");
    cuda::synchronise(ctx.cuda);
  }
}

}  // namespace flashgpt
