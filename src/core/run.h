// The funnel: every computation of the program goes through run(ctx, op).
//
// An op is a plain struct of tensors and numbers with
//   static constexpr const char* kName = "add_norm";
//   template <class V> void fields(V& v) const { v.out("y", y); v.in("x", x); v.inout("dw", dw); }   // every tensor, once
//   static double flops(const Op&)                                  optional: matrix work, for traces
// and, found by argument-dependent lookup,
//   void check(const Op&);                                          throws an Error that names the tensor, its shape and what was expected
//   std::size_t scratch_bytes(const Target&, const Op&);            optional: memory it needs while it runs
//   void launch(CpuStream, const Op&, Scratch);                     one file per backend; launch(CudaStream, ...) and cuda_scratch_bytes
//                                                                   likewise
// check sees shapes only; it must never follow a pointer, since a recording pass has none.
#pragma once
#include <chrono>

#include "core/context.h"

namespace flashgpt {

template <class Op> std::size_t scratch_bytes(const Target&, const Op&) { return 0; }

// Visits the fields of an op: each tensor that is there must lie on the context's device. Adds up the bytes that the op moves.
struct FieldScan {
  const char* op;
  Device device;
  double bytes = 0;

  void in(const char* field, const Tensor& t) { visit(field, t, 1); }
  void out(const char* field, const Tensor& t) { visit(field, t, 1); }
  void inout(const char* field, const Tensor& t) { visit(field, t, 2); }
  void visit(const char* field, const Tensor& t, double times) {
    if (!t) return;
    bytes += times * static_cast<double>(t.bytes());
    require(t.device == device, op, ": ", field, " lies on another device than the context");
  }
};

template <class Op> double flops_of(const Op& op) {
  if constexpr (requires { Op::flops(op); }) return Op::flops(op);
  return 0;
}

template <class Op> std::size_t scratch_for(const Target& target, const Op& op) {
  if (target.device.kind == DeviceKind::kCpu) return scratch_bytes(target, op);
  if constexpr (requires { cuda_scratch_bytes(target, op); }) return cuda_scratch_bytes(target, op);
  return 0;
}

template <class Op> void launch_on(Context& ctx, const Op& op, Scratch scratch) {
  if (ctx.target.device.kind == DeviceKind::kCpu) return launch(CpuStream{*ctx.pool}, op, scratch);
  if constexpr (requires { launch(ctx.cuda, op, scratch); }) return launch(ctx.cuda, op, scratch);
  throw Error(ErrorCode::kDevice, cat(Op::kName, ": no CUDA kernel in this build"));
}

template <class Op> void run(Context& ctx, const Op& op) {
  check(op);
  FieldScan scan{Op::kName, ctx.target.device};
  op.fields(scan);
  Scope scope(ctx);
  Scratch scratch;
  scratch.bytes = scratch_for(ctx.target, op);
  scratch.data = ctx.arena.bytes(scratch.bytes, MemClass::kWorkspace);

  TraceEntry* entry = ctx.trace ? &ctx.trace->of(Op::kName) : nullptr;
  if (entry) {
    entry->calls += 1;
    entry->flops += flops_of(op);
    entry->bytes += scan.bytes;
  }
  if (ctx.recording()) return;

  using Clock = std::chrono::steady_clock;
  const bool timed = entry && ctx.trace->timed;
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point{};
  launch_on(ctx, op, scratch);
  if (timed) entry->seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace flashgpt
