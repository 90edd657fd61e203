// The plain form of every op, one thread, no tricks: twin<double>(op) is the oracle that the kernels are tested against and the function
// that finite differences are taken of. It takes the same struct, with its floating-point tensors in T. In-place forms work where the op
// allows them.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "ops/add_norm.h"
#include "ops/bias_act.h"
#include "ops/check.h"
#include "ops/embedding.h"
#include "ops/linear_cross_entropy.h"
#include "ops/qk_norm.h"
#include "ops/qkv_rope.h"

namespace flashgpt {

template <class T> void twin(const AddNorm& op) {
  const std::int64_t rows = op.x.dim(0), columns = op.x.dim(1);
  const T *x = data_or_null<T>(op.x), *delta = data_or_null<T>(op.delta), *w = op.w.as<T>(), *b = data_or_null<T>(op.b);
  for (std::int64_t n = 0; n < rows; ++n) {
    std::vector<T> s(static_cast<std::size_t>(columns));
    for (std::int64_t c = 0; c < columns; ++c)
      s[static_cast<std::size_t>(c)] = x[n * columns + c] + (delta ? delta[n * columns + c] : T(0));
    T mean = 0, square = 0;
    for (T v : s) mean += v / static_cast<T>(columns);
    if (op.kind == NormKind::kRmsNorm) mean = 0;
    for (T v : s) square += (v - mean) * (v - mean) / static_cast<T>(columns);
    const T rstd = T(1) / std::sqrt(square + static_cast<T>(op.eps));
    if (op.mean) op.mean.as<T>()[n] = mean;
    if (op.rstd) op.rstd.as<T>()[n] = rstd;
    for (std::int64_t c = 0; c < columns; ++c) {
      const T v = s[static_cast<std::size_t>(c)];
      if (op.sum) op.sum.as<T>()[n * columns + c] = v;
      op.y.as<T>()[n * columns + c] = (v - mean) * rstd * w[c] + (b ? b[c] : T(0));
    }
  }
}

template <class T> void twin(const AddNormGrad& op) {
  const std::int64_t rows = op.x.dim(0), columns = op.x.dim(1);
  const bool layer_norm = op.kind == NormKind::kLayerNorm;
  const T *w = op.w.as<T>(), *mean = data_or_null<T>(op.mean), *rstd = data_or_null<T>(op.rstd);
  for (std::int64_t n = 0; n < rows; ++n) {
    const T *x = op.x.as<T>() + n * columns, *dy = op.dy.as<T>() + n * columns;
    auto xhat = [&](std::int64_t c) { return (x[c] - (layer_norm ? mean[n] : T(0))) * rstd[n]; };
    T mean_g = 0, mean_gx = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      mean_g += dy[c] * w[c] / static_cast<T>(columns);
      mean_gx += dy[c] * w[c] * xhat(c) / static_cast<T>(columns);
      if (op.dw) op.dw.as<T>()[c] += dy[c] * xhat(c);
      if (op.db) op.db.as<T>()[c] += dy[c];
    }
    if (!layer_norm) mean_g = 0;
    for (std::int64_t c = 0; c < columns; ++c) op.dx.as<T>()[n * columns + c] += rstd[n] * (dy[c] * w[c] - mean_g - xhat(c) * mean_gx);
  }
}

// The activation and its derivative at z; for SwiGLU those of the gate.
template <class T> T activation(Activation a, T z) {
  switch (a) {
    case Activation::kGeluTanh: return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<T>) * (z + T(0.044715) * z * z * z)));
    case Activation::kGelu: return z / 2 * std::erfc(-z / std::numbers::sqrt2_v<T>);
    case Activation::kSwiGlu: return z / (1 + std::exp(-z));
    case Activation::kNone: break;
  }
  return z;
}
template <class T> T activation_slope(Activation a, T z) {
  switch (a) {
    case Activation::kGeluTanh: {
      const T root = std::sqrt(2 / std::numbers::pi_v<T>), t = std::tanh(root * (z + T(0.044715) * z * z * z));
      return (1 + t) / 2 + z / 2 * (1 - t * t) * root * (1 + 3 * T(0.044715) * z * z);
    }
    case Activation::kGelu:
      return std::erfc(-z / std::numbers::sqrt2_v<T>) / 2 + z * std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi_v<T>);
    case Activation::kSwiGlu: {
      const T s = 1 / (1 + std::exp(-z));
      return s * (1 + z * (1 - s));
    }
    case Activation::kNone: break;
  }
  return 1;
}

template <class T> void twin(const BiasAct& op) {
  const std::int64_t rows = op.y.dim(0), columns = op.y.dim(1);
  const bool gated = op.activation == Activation::kSwiGlu;
  auto z = [&](std::int64_t n, std::int64_t c) { return op.x.as<T>()[n * op.x.dim(1) + c] + (op.bias ? op.bias.as<T>()[c] : T(0)); };
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t c = 0; c < columns; ++c)
      op.y.as<T>()[n * columns + c] = activation<T>(op.activation, z(n, c)) * (gated ? z(n, columns + c) : T(1));
}

template <class T> void twin(const BiasActGrad& op) {
  const std::int64_t rows = op.dy.dim(0), columns = op.dy.dim(1), wide = op.dx.dim(1);
  const bool gated = op.activation == Activation::kSwiGlu;
  auto z = [&](std::int64_t n, std::int64_t c) {
    if (op.activation == Activation::kNone) return T(0);
    return op.x.as<T>()[n * wide + c] + (op.bias ? op.bias.as<T>()[c] : T(0));
  };
  auto put = [&](std::int64_t n, std::int64_t c, T value) {
    op.dx.as<T>()[n * wide + c] = value;
    if (op.dbias) op.dbias.as<T>()[c] += value;
  };
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const T dy = op.dy.as<T>()[n * columns + c], gate = z(n, c), up = gated ? z(n, columns + c) : T(1);
      put(n, c, dy * activation_slope<T>(op.activation, gate) * up);
      if (gated) put(n, columns + c, dy * activation<T>(op.activation, gate));
    }
  }
}

template <class T> void twin(const QkNorm& op) {
  const std::int64_t rows = op.qkv.dim(0), columns = op.qkv.dim(1), d = op.q_weight.dim(0), normed = op.heads + op.kv_heads;
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t h = 0; h < normed; ++h) {
      T *v = op.qkv.as<T>() + n * columns + h * d, square = 0;
      const T* w = (h < op.heads ? op.q_weight : op.k_weight).as<T>();
      for (std::int64_t c = 0; c < d; ++c) square += v[c] * v[c] / static_cast<T>(d);
      const T rstd = T(1) / std::sqrt(square + static_cast<T>(op.eps));
      if (op.rstd) op.rstd.as<T>()[n * normed + h] = rstd;
      for (std::int64_t c = 0; c < d; ++c) {
        if (op.x) op.x.as<T>()[(n * normed + h) * d + c] = v[c];
        v[c] *= rstd * w[c];
      }
    }
  }
}

template <class T> void twin(const QkNormGrad& op) {
  const std::int64_t rows = op.dqkv.dim(0), columns = op.dqkv.dim(1), d = op.q_weight.dim(0), normed = op.heads + op.kv_heads;
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t h = 0; h < normed; ++h) {
      T* v = op.dqkv.as<T>() + n * columns + h * d;
      const T *x = op.x.as<T>() + (n * normed + h) * d, *w = (h < op.heads ? op.q_weight : op.k_weight).as<T>();
      T* dw = data_or_null<T>(h < op.heads ? op.dq_weight : op.dk_weight);
      const T rstd = op.rstd.as<T>()[n * normed + h];
      T mean = 0;
      for (std::int64_t c = 0; c < d; ++c) {
        mean += v[c] * w[c] * x[c] * rstd / static_cast<T>(d);
        if (dw) dw[c] += v[c] * x[c] * rstd;
      }
      for (std::int64_t c = 0; c < d; ++c) v[c] = rstd * (v[c] * w[c] - x[c] * rstd * mean);
    }
  }
}

// Turns pair j of every q and k head of a row by sign * position * inv_freq[j].
template <class T, class Op> void twin_rotate(const Op& op, T* row, std::int32_t position, T sign) {
  const std::int64_t half = op.inv_freq.dim(0);
  for (std::int64_t h = 0; h < op.heads + op.kv_heads; ++h) {
    for (std::int64_t j = 0; j < half; ++j) {
      const T angle = sign * static_cast<T>(position) * op.inv_freq.template as<T>()[j];
      T &u = row[h * op.head_dim + j], &v = row[h * op.head_dim + half + j];
      const T turned = u * std::cos(angle) - v * std::sin(angle);
      v = v * std::cos(angle) + u * std::sin(angle);
      u = turned;
    }
  }
}

template <class T> void twin(const QkvRope& op) {
  const std::int64_t rows = op.qkv.dim(0), columns = op.qkv.dim(1);
  for (std::int64_t n = 0; n < rows; ++n) {
    T* row = op.qkv.as<T>() + n * columns;
    for (std::int64_t c = 0; op.bias && c < columns; ++c) row[c] += op.bias.as<T>()[c];
    if (op.positions && op.inv_freq) twin_rotate<T>(op, row, op.positions.as<std::int32_t>()[n], T(1));
  }
}

template <class T> void twin(const QkvRopeGrad& op) {
  const std::int64_t rows = op.dqkv.dim(0), columns = op.dqkv.dim(1);
  for (std::int64_t n = 0; n < rows; ++n) {
    T* row = op.dqkv.as<T>() + n * columns;
    if (op.positions && op.inv_freq) twin_rotate<T>(op, row, op.positions.as<std::int32_t>()[n], T(-1));
    for (std::int64_t c = 0; op.dbias && c < columns; ++c) op.dbias.as<T>()[c] += row[c];
  }
}

template <class T> void twin(const Embedding& op) {
  const std::int64_t rows = op.y.dim(0), columns = op.y.dim(1);
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t c = 0; c < columns; ++c) {
      T y = op.table.as<T>()[op.tokens.as<std::int32_t>()[n] * columns + c];
      if (op.position_table) y += op.position_table.as<T>()[op.positions.as<std::int32_t>()[n] * columns + c];
      op.y.as<T>()[n * columns + c] = y;
    }
  }
}

template <class T> void twin(const EmbeddingGrad& op) {
  const std::int64_t rows = op.dy.dim(0), columns = op.dy.dim(1);
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const T d = op.dy.as<T>()[n * columns + c];
      op.dtable.as<T>()[op.tokens.as<std::int32_t>()[n] * columns + c] += d;
      if (op.dposition_table) op.dposition_table.as<T>()[op.positions.as<std::int32_t>()[n] * columns + c] += d;
    }
  }
}

template <class T> void twin(const LinearCrossEntropy& op) {
  const std::int64_t rows = op.x.dim(0), columns = op.x.dim(1), vocabulary = op.w.dim(0);
  StepScalars& scalars = scalars_of(op.scalars);
  const T scale = static_cast<T>(scalars.inv_targets) * static_cast<T>(scalars.loss_scale);
  std::vector<T> logits(static_cast<std::size_t>(vocabulary));
  for (std::int64_t n = 0; n < rows; ++n) {
    const T* x = op.x.as<T>() + n * columns;
    T* dx = op.dx ? op.dx.as<T>() + n * columns : nullptr;
    if (dx) std::fill_n(dx, columns, T(0));
    if (op.losses) op.losses.as<T>()[n] = 0;
    const std::int32_t target = op.targets.as<std::int32_t>()[n];
    if (target < 0) continue;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      T& z = logits[static_cast<std::size_t>(v)] = 0;
      for (std::int64_t c = 0; c < columns; ++c) z += x[c] * op.w.as<T>()[v * columns + c];
    }
    const T most = *std::max_element(logits.begin(), logits.end());
    T total = 0;
    for (T z : logits) total += std::exp(z - most);
    const T loss = std::log(total) + most - logits[static_cast<std::size_t>(target)];
    scalars.loss_sum += static_cast<double>(loss);
    if (op.losses) op.losses.as<T>()[n] = loss;
    for (std::int64_t v = 0; dx && v < vocabulary; ++v) {
      const T d = (std::exp(logits[static_cast<std::size_t>(v)] - most) / total - (v == target ? T(1) : T(0))) * scale;
      for (std::int64_t c = 0; c < columns; ++c) {
        dx[c] += d * op.w.as<T>()[v * columns + c];
        if (op.dw) op.dw.as<T>()[v * columns + c] += d * x[c];
      }
    }
  }
}

}  // namespace flashgpt
