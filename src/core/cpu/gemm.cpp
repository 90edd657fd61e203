// Matrix products on the CPU. OpenBLAS runs one thread a call; a product is cut into a grid of panels by its shape alone, never along K,
// and our pool works the panels off: the bits of C do not depend on the number of threads, and one pool serves the whole program.
// A few rows against a transposed matrix (decoding) are a read of that matrix: OpenBLAS is 5 times slower than memory there, so they have
// a kernel of their own.
#include "core/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/cpu/simd.h"

// Of a DYNAMIC_ARCH build of OpenBLAS; null in others.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
}

namespace flashgpt {
namespace {

using Index = std::int64_t;

// Panels of 256 x 768 come within a few percent of OpenBLAS' own two threads on large products (measured over linear layers, weight
// gradients and the language-model head); smaller ones pay for packing, larger ones for the caches. A product with few of them is cut
// finer, to feed more workers, down to 128 x 192 (some 15% slower each).
constexpr Index kPanelM = 256, kPanelN = 768;
constexpr Index kLeastM = 128, kLeastN = 192;
constexpr Index kWantedPanels = 12;
constexpr Index kFewRows = 8;  // products of so many rows at most use the kernel for decoding

Index divide_up(Index a, Index b) { return (a + b - 1) / b; }

struct Panels {
  Index rows, columns;  // of a panel
  Index across, count;
};

Panels cut(Index m, Index n) {
  Index gm = divide_up(m, kPanelM), gn = divide_up(n, kPanelN);
  while (gm * gn < kWantedPanels) {
    const bool more_rows = m / (gm + 1) >= kLeastM, more_columns = n / (gn + 1) >= kLeastN;
    if (more_columns && (!more_rows || n * gm * 2 >= m * gn * 3))
      ++gn;
    else if (more_rows)
      ++gm;
    else
      break;
  }
  Panels p;
  p.rows = divide_up(divide_up(m, gm), 8) * 8;
  p.columns = divide_up(divide_up(n, gn), 16) * 16;
  p.across = divide_up(n, p.columns);
  p.count = p.across * divide_up(m, p.rows);
  return p;
}

// An OpenBLAS older than the processor does not know its model and falls back to SSE3 kernels, 4 to 8 times slower (0.3.21 on an Intel Xeon
// of 2024). It then gets the kernels of the instruction set that is there; blas_self_test() checks them as any others. A choice of the
// user stays.
void choose_kernels() {
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const std::string_view chosen = openblas_get_corename();
  if (std::getenv(kVariable) || !gotoblas_dynamic_init || !gotoblas_dynamic_quit) return;
  if (chosen != "Prescott" && chosen != "Core2" && chosen != "Nehalem" && chosen != "generic") return;
  const Isa isa = simd::isa();
  if (isa == Isa::kPortable) return;
  setenv(kVariable, isa == Isa::kAvx512 ? "SkylakeX" : "Haswell", 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv(kVariable);
}

void prepare_blas() {
  static const bool done = (openblas_set_num_threads(1), choose_kernels(), true);
  (void)done;
}

void scale_rows(Index m, Index n, bool accumulate, float* c, Index ldc) {
  if (accumulate) return;
  for (Index i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
}

// C[m, n] for columns [first, last) of few rows: dot products of the rows of A and of B (B is [N, K]). Four rows of A at a time, so that
// a row of B is read from memory once and from the L1 cache after that.
struct FewRows {
  const float *a, *b;
  float* c;
  Index m, k, lda, ldb, ldc;
  float alpha;
  bool accumulate;

  template <int W, int Rows> [[gnu::always_inline]] void rows(Index i, Index j) const {
    simd::Vec<W> total[Rows];
    for (int r = 0; r < Rows; ++r) total[r] = simd::splat<W>(0.0f);
    const float* bj = b + j * ldb;
    for (Index p = 0; p < k; p += simd::kLanes) {
      const simd::Vec<W> y = simd::load_upto<W>(bj + p, k - p);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) total[r] = total[r] + simd::load_upto<W>(a + (i + r) * lda + p, k - p) * y;
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      float* out = c + (i + r) * ldc + j;
      *out = alpha * simd::sum(total[r]) + (accumulate ? *out : 0.0f);
    }
  }

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    for (Index j = first; j < last; ++j) {
      Index i = 0;
      for (; i + 4 <= m; i += 4) rows<W, 4>(i, j);
      if (i + 2 <= m) {
        rows<W, 2>(i, j);
        i += 2;
      }
      if (i < m) rows<W, 1>(i, j);
    }
  }
};

Index few_rows_columns(Index k) { return std::max<Index>(8, 65536 / std::max<Index>(k, 1)); }  // 256 KB of B a task

std::string describe() {
  prepare_blas();
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the first two words.
  std::string config = openblas_get_config();
  std::size_t end = config.find(' ');
  if (end != std::string::npos) end = config.find(' ', end + 1);
  return config.substr(0, end) + ", " + openblas_get_corename() + " kernels";
}

}  // namespace

void check(const Gemm& op) {
  auto matrix = [](const char* name, const Tensor& t) {
    require(t.rank() == 2, "gemm: ", name, " has shape ", t.shape.str(), ", expected a matrix");
    require(t.dtype == Dtype::kF32, "gemm: ", name, " is ", name_of(t.dtype), ", expected fp32");
    require(t.dim(1) <= 1 || t.stride(1) == 1, "gemm: ", name, " has inner stride ", t.stride(1), ", expected 1");
    require(t.dim(0) <= 1 || t.stride(0) >= t.dim(1), "gemm: ", name, " has row stride ", t.stride(0), ", expected at least its ", t.dim(1),
            " columns");
    require(t.dim(0) <= INT32_MAX && t.dim(1) <= INT32_MAX && t.stride(0) <= INT32_MAX, "gemm: ", name, " of shape ", t.shape.str(),
            " is too large for the BLAS, expected dimensions below 2^31");
  };
  matrix("c", op.c);
  matrix("a", op.a);
  matrix("b", op.b);
  const Index m = op.a.dim(op.trans_a ? 1 : 0), k = op.a.dim(op.trans_a ? 0 : 1);
  const Index kb = op.b.dim(op.trans_b ? 1 : 0), n = op.b.dim(op.trans_b ? 0 : 1);
  require(k == kb, "gemm: a ", op.a.shape.str(), op.trans_a ? "^T" : "", " and b ", op.b.shape.str(), op.trans_b ? "^T" : "",
          " do not fit: inner sizes ", k, " and ", kb);
  require(op.c.dim(0) == m && op.c.dim(1) == n, "gemm: c has shape ", op.c.shape.str(), ", expected [", m, ", ", n, "]");
}

void gemm_serial(bool trans_a, bool trans_b, Index m, Index n, Index k, float alpha, const float* a, Index lda, const float* b, Index ldb,
                 bool accumulate, float* c, Index ldc) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return scale_rows(m, n, accumulate, c, ldc);
  prepare_blas();
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), alpha, a, static_cast<blasint>(lda), b, static_cast<blasint>(ldb),
              accumulate ? 1.0f : 0.0f, c, static_cast<blasint>(ldc));
}

void launch(CpuStream s, const Gemm& op, Scratch) {
  const Index m = op.c.dim(0), n = op.c.dim(1), k = op.a.dim(op.trans_a ? 0 : 1);
  if (m == 0 || n == 0) return;
  const float *a = op.a.as<float>(), *b = op.b.as<float>();
  float* c = op.c.as<float>();
  // A matrix of one row may carry any row stride; the BLAS wants at least the number of columns.
  const Index lda = std::max(op.a.stride(0), op.a.dim(1)), ldb = std::max(op.b.stride(0), op.b.dim(1)), ldc = std::max(op.c.stride(0), n);

  if (m <= kFewRows && !op.trans_a && op.trans_b && k > 0) {
    const FewRows kernel{a, b, c, m, k, lda, ldb, ldc, op.alpha, op.accumulate};
    const Index width = few_rows_columns(k);
    s.pool.parallel_for(divide_up(n, width),
                        [&](Index task, int) { simd::call(simd::isa(), kernel, task * width, std::min(n, (task + 1) * width)); });
    return;
  }

  const Panels p = cut(m, n);
  s.pool.parallel_for(p.count, [&](Index task, int) {
    // Down the columns first: neighbouring tasks share a panel of B, the weights in a linear layer.
    const Index down = p.count / p.across;
    const Index i = task % down * p.rows, j = task / down * p.columns;
    gemm_serial(op.trans_a, op.trans_b, std::min(p.rows, m - i), std::min(p.columns, n - j), k, op.alpha, a + (op.trans_a ? i : i * lda),
                lda, b + (op.trans_b ? j * ldb : j), ldb, op.accumulate, c + i * ldc + j, ldc);
  });
}

const char* blas_description() {
  static const std::string text = describe();
  return text.c_str();
}

void blas_self_test() {
  prepare_blas();
  // A kernel set forced on a processor that lacks its instructions would end the program at the first product.
  const std::string_view kernels = openblas_get_corename();
  if ((kernels == "SkylakeX" || kernels == "Cooperlake" || kernels == "Sapphirerapids") && !__builtin_cpu_supports("avx512f"))
    throw Error(ErrorCode::kDevice, cat("OPENBLAS_CORETYPE asks for ", kernels, " kernels, but this processor has no AVX-512: unset it"));

  struct Case {
    Index m, n, k;
  };
  constexpr Case kCases[] = {{1, 1, 0}, {1, 1, 1}, {3, 5, 7}, {64, 64, 64}, {33, 70, 129}, {128, 200, 65}, {48, 96, 400}};
  std::uint32_t state = 12345;
  auto next = [&] {  // in (-1, 1)
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  };
  for (const Case& z : kCases) {
    for (int form = 0; form < 8; ++form) {
      const bool ta = form & 1, tb = form & 2, accumulate = form & 4;
      const Index lda = (ta ? z.m : z.k) + 1, ldb = (tb ? z.k : z.n) + 2, ldc = z.n + 3;
      std::vector<float> a(static_cast<std::size_t>((ta ? z.k : z.m) * lda + 1)), b(static_cast<std::size_t>((tb ? z.n : z.k) * ldb + 1));
      std::vector<float> c(static_cast<std::size_t>(z.m * ldc));
      for (float& x : a) x = next();
      for (float& x : b) x = next();
      for (float& x : c) x = accumulate ? next() : NAN;  // beta = 0 must not read C
      const std::vector<float> before = c;
      cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, static_cast<blasint>(z.m),
                  static_cast<blasint>(z.n), static_cast<blasint>(z.k), 0.5f, a.data(), static_cast<blasint>(lda), b.data(),
                  static_cast<blasint>(ldb), accumulate ? 1.0f : 0.0f, c.data(), static_cast<blasint>(ldc));
      for (Index i = 0; i < z.m; ++i) {
        for (Index j = 0; j < ldc; ++j) {
          const float got = c[static_cast<std::size_t>(i * ldc + j)], was = before[static_cast<std::size_t>(i * ldc + j)];
          if (j >= z.n) {
            if (std::memcmp(&got, &was, sizeof got) == 0) continue;
          } else {
            if (i % 3 != form % 3) continue;  // a third of the rows is enough, and keeps the start of the program short
            double expected = accumulate ? was : 0.0;
            for (Index p = 0; p < z.k; ++p)
              expected += 0.5 * static_cast<double>(a[static_cast<std::size_t>(ta ? p * lda + i : i * lda + p)]) *
                          static_cast<double>(b[static_cast<std::size_t>(tb ? j * ldb + p : p * ldb + j)]);
            if (std::abs(got - expected) <= 1e-5 * (1.0 + std::sqrt(static_cast<double>(z.k)))) continue;
          }
          throw Error(ErrorCode::kDevice,
                      cat("the BLAS is wrong on this processor (", blas_description(), "): product ", z.m, " x ", z.n, " x ", z.k,
                          ta ? ", A transposed" : "", tb ? ", B transposed" : "", accumulate ? ", added" : "", ": element (", i, ", ", j,
                          ") is ", got, "; set OPENBLAS_CORETYPE=Haswell (AVX2) or Prescott (SSE3), or install a newer OpenBLAS"));
        }
      }
    }
  }
}

}  // namespace flashgpt
