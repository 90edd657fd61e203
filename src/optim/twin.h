// The optimizer's ops in their plain form: the formulas of optim/ops.h, and nothing else. twin<double>(op) is the oracle of the tests.
#pragma once
#include <cmath>
#include <vector>

#include "ops/check.h"
#include "optim/ops.h"

namespace flashgpt {

template <class T> void twin(const AdamW& op) {
  const StepScalars& s = scalars_of(op.scalars);
  if (s.skip) return;
  const T beta1 = op.beta1, beta2 = op.beta2, rate = s.learning_rate;
  for (std::int64_t i = 0; i < op.w.numel(); ++i) {
    T &w = op.w.as<T>()[i], &m = op.m.as<T>()[i], &v = op.v.as<T>()[i];
    const T g = op.g.as<T>()[i] * static_cast<T>(s.grad_scale);
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const T m_hat = m / (1 - std::pow(beta1, static_cast<T>(s.step))), v_hat = v / (1 - std::pow(beta2, static_cast<T>(s.step)));
    w -= rate * (m_hat / (std::sqrt(v_hat) + static_cast<T>(op.eps)) + static_cast<T>(op.weight_decay) * w);
  }
}

template <class T> void twin(const Adafactor& op) {
  const StepScalars& s = scalars_of(op.scalars);
  if (s.skip || op.w.numel() == 0) return;
  const std::int64_t columns = op.w.dim(-1), rows = op.w.numel() / columns;
  const T beta2 = 1 - std::pow(static_cast<T>(s.step), -static_cast<T>(op.decay_rate)), n = static_cast<T>(op.w.numel());
  auto g = [&](std::int64_t r, std::int64_t c) { return op.g.as<T>()[r * columns + c] * static_cast<T>(s.grad_scale); };
  auto square = [&](std::int64_t r, std::int64_t c) { return g(r, c) * g(r, c) + static_cast<T>(op.eps1); };
  const bool factored = op.w.rank() == 2;
  T* col = op.col.as<T>();
  T row_mean = 0;
  for (std::int64_t r = 0; factored && r < rows; ++r) {
    T mean = 0;
    for (std::int64_t c = 0; c < columns; ++c) mean += square(r, c) / static_cast<T>(columns);
    T& row = op.row.as<T>()[r];
    row = beta2 * row + (1 - beta2) * mean;
    row_mean += row / static_cast<T>(rows);
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    T mean = 0;
    for (std::int64_t r = 0; r < rows; ++r) mean += square(r, c) / static_cast<T>(rows);
    col[c] = beta2 * col[c] + (1 - beta2) * mean;
  }
  std::vector<T> u(static_cast<std::size_t>(op.w.numel()));
  T squares_of_u = 0, squares_of_w = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const T second = factored ? op.row.as<T>()[r] * col[c] / row_mean : col[c];
      T& update = u[static_cast<std::size_t>(r * columns + c)] = g(r, c) / std::sqrt(second);
      squares_of_u += update * update;
      squares_of_w += op.w.as<T>()[r * columns + c] * op.w.as<T>()[r * columns + c];
    }
  }
  T rate = s.learning_rate;
  if (op.relative_step) rate *= std::max(static_cast<T>(op.eps2), std::sqrt(squares_of_w / n));
  const T clip = std::max(T(1), std::sqrt(squares_of_u / n) / static_cast<T>(op.clip_threshold));
  for (std::int64_t i = 0; i < op.w.numel(); ++i) {
    T& w = op.w.as<T>()[i];
    w -= rate * u[static_cast<std::size_t>(i)] / clip + rate * static_cast<T>(op.weight_decay) * w;
  }
}

}  // namespace flashgpt
