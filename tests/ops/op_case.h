// Runs an op the way the program does and holds it against its double-precision twin: every instruction set and 1, 2 and 3 threads must
// give the same bits, the scratch is full of NaN and guarded, what an op overwrites is poisoned by the case itself.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/simd.h"
#include "core/run.h"
#include "core/step_scalars.h"
#include "on_gpu.h"
#include "ops/check.h"

namespace flashgpt::testing {

inline const float kNan = std::numeric_limits<float>::quiet_NaN();

// Owns the memory of tensors. Empty tensors have no address, as in an arena.
class Box {
 public:
  explicit Box(unsigned seed = 1) : rng(seed) {}

  Tensor raw(Shape shape, Dtype dtype) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    if (bytes == 0) return Tensor(nullptr, shape, dtype);
    memory_.emplace_back(bytes / 8 + 1);
    return Tensor(memory_.back().data(), shape, dtype);
  }
  Tensor filled(Shape shape, float value) {
    Tensor t = raw(shape, Dtype::kF32);
    for (std::int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = value;
    return t;
  }
  Tensor normal(Shape shape, float scale = 1.0f) {
    Tensor t = raw(shape, Dtype::kF32);
    std::normal_distribution<float> d(0.0f, scale);
    for (std::int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = d(rng);
    return t;
  }
  Tensor ids(std::int64_t n, std::int64_t first, std::int64_t last) {  // in [first, last)
    Tensor t = raw({n}, Dtype::kI32);
    std::uniform_int_distribution<std::int32_t> d(static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - 1));
    for (std::int64_t i = 0; i < n; ++i) t.as<std::int32_t>()[i] = d(rng);
    return t;
  }
  Tensor scalars(const StepScalars& s) {
    Tensor t = raw({static_cast<std::int64_t>(sizeof s)}, Dtype::kU8);
    std::memcpy(t.data, &s, sizeof s);
    return t;
  }
  // The op on memory of its own, fp32 as it is or as doubles. Fields that share memory go on doing so.
  template <class Op> Op copy(const Op& op) { return copy_as(op, false); }
  template <class Op> Op widen(const Op& op) { return copy_as(op, true); }

  std::mt19937 rng;

 private:
  template <class Op> Op copy_as(const Op& op, bool wide) {
    struct Visitor {
      Box& box;
      bool wide;
      std::map<void*, void*> known;
      void in(const char*, const Tensor& t) { visit(const_cast<Tensor&>(t)); }  // fields of `result` below, which is not const
      void out(const char*, const Tensor& t) { in("", t); }
      void inout(const char*, const Tensor& t) { in("", t); }
      void visit(Tensor& t) {
        const bool widen = wide && t.dtype == Dtype::kF32;
        if (t.rank() == 0) return;
        Tensor made = box.raw(t.shape, widen ? Dtype::kF64 : t.dtype);
        if (t.data) {
          auto [at, fresh] = known.try_emplace(t.data, made.data);
          made.data = at->second;
          if (fresh && !widen) std::memcpy(made.data, t.data, t.bytes());
          if (fresh && widen)
            for (std::int64_t i = 0; i < t.numel(); ++i) made.as<double>()[i] = t.as<float>()[i];
        }
        t = made;
      }
    };
    Op result = op;
    Visitor v{*this, wide, {}};
    result.fields(v);
    return result;
  }
  std::deque<std::vector<double>> memory_;
};

struct Outputs {
  std::vector<std::pair<std::string, Tensor>> list;
  void in(const char*, const Tensor&) {}
  void out(const char* name, const Tensor& t) {
    if (t) list.emplace_back(name, t);
  }
  void inout(const char* name, const Tensor& t) { out(name, t); }
};
template <class Op> std::vector<std::pair<std::string, Tensor>> outputs(const Op& op) {
  Outputs o;
  op.fields(o);
  return o.list;
}

template <class Op> void run_op(ThreadPool& pool, const Op& op) {
  check(op);
  if (on_gpu()) return run_on_gpu(op);
  Target target = cpu_target(pool.size());
  const std::size_t bytes = scratch_bytes(target, op), guard = 64;
  std::vector<double> memory(bytes / 8 + 1 + 2 * guard / 8);
  std::memset(memory.data(), 0xff, memory.size() * 8);
  std::byte* start = reinterpret_cast<std::byte*>(memory.data()) + guard;
  launch(CpuStream{pool}, op, Scratch{bytes ? start : nullptr, bytes});
  for (std::size_t i = 0; i < guard; ++i) {
    ASSERT_EQ(start[-1 - static_cast<std::ptrdiff_t>(i)], std::byte{0xff}) << Op::kName << " wrote in front of its scratch";
    ASSERT_EQ(start[bytes + i], std::byte{0xff}) << Op::kName << " wrote behind its scratch of " << bytes << " bytes";
  }
}

inline std::vector<Isa> instruction_sets() {
  std::vector<Isa> list;
  for (Isa i : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512})
    if (i <= cpu_target(1).isa) list.push_back(i);
  return list;
}

// fp32 against double: |a - b| <= tolerance * (largest |b| of the tensor, at least floor).
inline void expect_close(const std::string& name, const Tensor& a, const Tensor& b, double tolerance, double floor = 1e-3) {
  double largest = floor;
  tolerance *= gpu_slack();
  for (std::int64_t i = 0; i < b.numel(); ++i) largest = std::max(largest, std::abs(b.as<double>()[i]));
  for (std::int64_t i = 0; i < b.numel(); ++i)
    ASSERT_NEAR(a.as<float>()[i], b.as<double>()[i], tolerance * largest) << name << " " << b.shape.str() << " at " << i;
}

// Leaves the op with its results (on the box's memory) in `result` if given, which may be the op itself.
template <class Op> void expect_like_twin(Box& box, const Op& op, double tolerance, Op* result = nullptr) {
  const Op wide = box.widen(op);
  twin<double>(wide);
  const auto expected = outputs(wide);
  std::vector<std::pair<std::string, Tensor>> first;
  Op kept = op;
  const Isa before = simd::isa();
  for (Isa isa : instruction_sets()) {
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE(cat(Op::kName, ", ", name_of(isa), ", ", threads, " threads"));
      simd::use_isa(isa);
      ThreadPool pool(threads, false);
      const Op mine = box.copy(op);
      run_op(pool, mine);
      const auto got = outputs(mine);
      if (first.empty()) {
        first = got;
        kept = mine;
        for (std::size_t i = 0; i < got.size(); ++i)
          if (got[i].second.dtype == Dtype::kF32) expect_close(got[i].first, got[i].second, expected[i].second, tolerance);
      }
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::memcmp(got[i].second.data, first[i].second.data, got[i].second.bytes()), 0) << got[i].first << ": other bits";
    }
  }
  simd::use_isa(before);
  if (result) *result = kept;
}

// d loss / d x by central differences of the twin, against `gradient`, both in double.
template <class Loss> void expect_gradient(const char* name, const Tensor& x, const Tensor& gradient, Loss loss) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    double& at = x.as<double>()[i];
    const double was = at, h = 1e-5;
    at = was + h;
    const double above = loss();
    at = was - h;
    const double below = loss();
    at = was;
    ASSERT_NEAR((above - below) / (2 * h), gradient.as<double>()[i], 1e-7 + 1e-6 * std::abs(gradient.as<double>()[i]))
        << name << " at " << i;
  }
}

inline double dot(const Tensor& a, const Tensor& b) {
  double total = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) total += a.as<double>()[i] * b.as<double>()[i];
  return total;
}

template <class Op> std::string check_message(const Op& op) {
  try {
    check(op);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace flashgpt::testing
