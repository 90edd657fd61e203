// Products against a plain loop in double, every transpose, odd and strided shapes, and the same bits for any number of threads.
#include "core/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace flashgpt {
namespace {

struct Matrix {
  std::vector<float> data;
  Tensor view;
};

// Rows are padded by `pad` elements of NaN that nobody may read.
Matrix matrix(std::int64_t rows, std::int64_t columns, std::int64_t pad, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  Matrix m;
  m.data.assign(static_cast<std::size_t>(rows * (columns + pad)) + 1, NAN);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) m.data[static_cast<std::size_t>(i * (columns + pad) + j)] = normal(rng);
  m.view = Tensor(m.data.data(), {rows, columns + pad}, Dtype::kF32);
  m.view.shape.dims[1] = columns;
  return m;
}

float at(const Tensor& t, bool transposed, std::int64_t i, std::int64_t j) {
  return t.as<float>()[transposed ? j * t.stride(0) + i : i * t.stride(0) + j];
}

class GemmTest : public ::testing::Test {
 protected:
  GemmTest() {
    for (int i = 1; i <= 3; ++i) pools.push_back(std::make_unique<ThreadPool>(i, false));
  }
  std::vector<std::unique_ptr<ThreadPool>> pools;

  void run_case(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t pad) {
    std::mt19937 rng(7);
    for (int form = 0; form < 8; ++form) {
      const bool ta = form & 1, tb = form & 2, accumulate = form & 4;
      Matrix a = ta ? matrix(k, m, pad, rng) : matrix(m, k, pad, rng);
      Matrix b = tb ? matrix(n, k, pad, rng) : matrix(k, n, pad, rng);
      Matrix c = matrix(m, n, pad, rng);
      if (!accumulate) std::fill(c.data.begin(), c.data.end(), NAN);  // what is overwritten is not read
      const std::vector<float> before = c.data;
      std::vector<float> first;
      for (auto& pool : pools) {
        c.data = before;
        const Gemm op{.c = c.view, .a = a.view, .b = b.view, .trans_a = ta, .trans_b = tb, .accumulate = accumulate, .alpha = 0.5f};
        check(op);
        launch(CpuStream{*pool}, op, {});
        if (first.empty()) first = c.data;
        ASSERT_EQ(std::memcmp(first.data(), c.data.data(), first.size() * sizeof(float)), 0) << pool->size() << " threads";
      }
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          const std::size_t e = static_cast<std::size_t>(i * (n + pad) + j);
          double want = accumulate ? before[e] : 0.0;
          for (std::int64_t p = 0; p < k; ++p) want += 0.5 * at(a.view, ta, i, p) * at(b.view, tb, p, j);
          ASSERT_NEAR(c.data[e], want, 2e-6 * (1 + std::sqrt(static_cast<double>(k)) * 4)) << m << " " << n << " " << k << " form " << form;
        }
        for (std::int64_t j = n; j < n + pad; ++j) {
          const std::size_t e = static_cast<std::size_t>(i * (n + pad) + j);
          ASSERT_EQ(std::memcmp(&c.data[e], &before[e], sizeof(float)), 0) << "padding of row " << i;
        }
      }
    }
  }
};

TEST_F(GemmTest, AgreesWithALoop) {
  for (auto [m, n, k] : {std::array<int, 3>{1, 1, 1}, {1, 7, 3}, {7, 1, 768}, {5, 3, 2}, {64, 64, 64}, {130, 390, 33}, {300, 500, 65}})
    run_case(m, n, k, 0);
}

TEST_F(GemmTest, StridedRows) {
  for (auto [m, n, k] : {std::array<int, 3>{1, 33, 17}, {7, 100, 768}, {70, 200, 31}}) run_case(m, n, k, 5);
}

TEST_F(GemmTest, FewRowsAsInDecoding) {
  for (int m = 1; m <= 9; ++m) run_case(m, 130, 77, 0);
  run_case(1, 3, 5, 0);
}

TEST_F(GemmTest, EmptySizes) {
  for (auto [m, n, k] : {std::array<int, 3>{0, 4, 4}, {4, 0, 4}, {4, 4, 0}, {0, 0, 0}, {1, 1, 0}}) run_case(m, n, k, 0);
}

TEST_F(GemmTest, SerialHandlesEmptySums) {
  float c[4] = {NAN, NAN, NAN, NAN};
  gemm_serial(false, false, 2, 2, 0, 1.0f, nullptr, 1, nullptr, 2, false, c, 2);
  for (float x : c) EXPECT_EQ(x, 0.0f);
  c[0] = 3;
  gemm_serial(false, false, 2, 2, 0, 1.0f, nullptr, 1, nullptr, 2, true, c, 2);
  EXPECT_EQ(c[0], 3.0f);
}

TEST(Gemm, CheckNamesTheArgument) {
  float x[64] = {};
  auto message = [](const Gemm& op) -> std::string {
    try {
      check(op);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const Tensor a(x, {2, 3}, Dtype::kF32), b(x, {4, 5}, Dtype::kF32), c(x, {2, 5}, Dtype::kF32);
  EXPECT_NE(message({.c = c, .a = a, .b = b}).find("inner sizes 3 and 4"), std::string::npos);
  EXPECT_NE(message({.c = c, .a = a, .b = Tensor(x, {3, 4}, Dtype::kF32)}).find("expected [2, 4]"), std::string::npos);
  EXPECT_NE(message({.c = c, .a = Tensor(x, {2, 3}, Dtype::kBF16), .b = b}).find("a is bf16"), std::string::npos);
  Tensor transposed(x, {2, 3}, Dtype::kF32);
  transposed.strides[0] = 1;
  transposed.strides[1] = 2;
  EXPECT_NE(message({.c = c, .a = transposed, .b = b}).find("inner stride 2"), std::string::npos);
}

TEST(Gemm, TheBlasIsRightOnThisProcessor) {
  EXPECT_NE(std::string(blas_description()).find("kernels"), std::string::npos);
  EXPECT_NO_THROW(blas_self_test());
}

}  // namespace
}  // namespace flashgpt
