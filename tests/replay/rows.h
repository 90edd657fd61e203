// Micro-batches made by hand for the replay of faults: rows of documents, packed as the loader packs them.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "train/engine.h"

namespace flashgpt::testing {

struct HandRows {
  std::vector<std::int32_t> tokens, targets, positions, cu_seqlens{0};

  // Appends a document: each token predicts the next; the last one predicts nothing.
  void document(const std::vector<std::int32_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      tokens.push_back(ids[i]);
      targets.push_back(i + 1 < ids.size() ? ids[i + 1] : -1);
      positions.push_back(static_cast<std::int32_t>(i));
    }
    cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  // Tokens up to n that belong to no document.
  void pad_to(std::size_t n, std::int32_t id = 0) {
    tokens.resize(n, id);
    targets.resize(n, -1);
    positions.resize(n, 0);
  }
  HostBatch batch() {
    cu_seqlens.resize(tokens.size() + 1, cu_seqlens.back());
    return {tokens.data(), targets.data(), positions.data(), cu_seqlens.data()};
  }
  std::int64_t counted() const {
    return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
  }
};

// Ids that look like text to nobody: the same for the same seed.
inline std::vector<std::int32_t> some_ids(std::size_t n, std::int64_t vocab, std::uint32_t seed) {
  std::vector<std::int32_t> ids(n);
  for (std::int32_t& id : ids) {
    seed = seed * 1664525u + 1013904223u;
    id = static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(vocab));
  }
  return ids;
}

inline std::vector<float> values(const std::vector<Tensor>& tensors) {
  std::vector<float> out;
  for (const Tensor& t : tensors) out.insert(out.end(), t.as<float>(), t.as<float>() + t.numel());
  return out;
}
inline std::vector<float> values(const std::vector<NamedTensor>& tensors) {
  std::vector<float> out;
  for (const NamedTensor& t : tensors) out.insert(out.end(), t.tensor.as<float>(), t.tensor.as<float>() + t.tensor.numel());
  return out;
}

inline double difference(const std::vector<float>& a, const std::vector<float>& b) {  // relative, of the whole vectors
  double d = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    d += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return a.size() == b.size() && size > 0 ? std::sqrt(d / size) : HUGE_VAL;
}

}  // namespace flashgpt::testing
