// Matrix product C = alpha * op(A) op(B) [+ C], row-major, op is identity or transpose. The inner stride of each matrix must be 1; rows may
// be strided. On the CPU it is cut by shape alone into panels, each a one-thread call of the BLAS from our pool.
#pragma once
#include "core/run.h"

namespace flashgpt {

struct Gemm {
  Tensor c;     // [M, N]; overwritten, or added to when accumulate
  Tensor a, b;  // [M, K] or transposed [K, M]; [K, N] or transposed [N, K]
  bool trans_a = false;
  bool trans_b = false;
  bool accumulate = false;
  float alpha = 1.0f;

  static constexpr const char* kName = "gemm";
  template <class V> void fields(V& v) const {
    if (accumulate)
      v.inout("c", c);
    else
      v.out("c", c);
    v.in("a", a);
    v.in("b", b);
  }
  static double flops(const Gemm& g) {
    return 2.0 * static_cast<double>(g.c.numel()) * static_cast<double>(g.trans_a ? g.a.dim(0) : g.a.dim(1));
  }
};
void check(const Gemm& op);
void launch(CpuStream s, const Gemm& op, Scratch);
std::size_t cuda_scratch_bytes(const Target& target, const Gemm& op);
void launch(CudaStream s, const Gemm& op, Scratch scratch);

// One one-thread product on the calling worker, for ops that do products of their own (attention `standard`, linear + cross-entropy).
// Matrices are row-major with leading dimensions lda, ldb, ldc. K = 0 gives zeros (or leaves C when accumulate).
void gemm_serial(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t lda,
                 const float* b, std::int64_t ldb, bool accumulate, float* c, std::int64_t ldc);

// The BLAS in use, e.g. "OpenBLAS 0.3.21, Zen kernels". blas_self_test() multiplies a few small matrices (14 ms) and throws when the
// library is wrong on this processor (seen with old OpenBLAS builds on new processors). Call it at the start of the program, before there
// are other threads: the first use of the BLAS also sets it to one thread and, if it does not know the processor, chooses its kernels.
const char* blas_description();
void blas_self_test();

}  // namespace flashgpt
