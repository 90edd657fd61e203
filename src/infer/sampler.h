// Chooses the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace flashgpt {

struct SamplingParams {
  double temperature = 1.0;  // 0: the largest logit (ties: the lowest id)
  std::int64_t top_k = 0;    // only the k largest; 0: all
  double top_p = 1.0;        // only the smallest set of largest probabilities that adds up to p
  std::uint64_t seed = 0;
};

void check(const SamplingParams& p);

// The token of row `row` at its `index`-th step. Depends on the seed, row and index alone, not on the calls before. `order` is working
// memory, kept by the caller so that a step asks for none.
std::int32_t sample(std::span<const float> logits, const SamplingParams& p, std::uint32_t row, std::uint64_t index,
                    std::vector<std::int32_t>& order);

}  // namespace flashgpt
