#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/philox.h"
#include "flashgpt/error.h"

namespace flashgpt {

void check(const SamplingParams& p) {
  require(std::isfinite(p.temperature) && p.temperature >= 0, "temperature = ", p.temperature, ", expected a number of at least 0");
  require(p.top_k >= 0, "top-k = ", p.top_k, ", expected 0 (all) or more");
  require(p.top_p > 0 && p.top_p <= 1, "top-p = ", p.top_p, ", expected a number in (0, 1]");
}

std::int32_t sample(std::span<const float> logits, const SamplingParams& p, std::uint32_t row, std::uint64_t index,
                    std::vector<std::int32_t>& order) {
  require(!logits.empty(), "sample: no logits");
  const auto wrong = std::find_if(logits.begin(), logits.end(), [](float x) { return std::isnan(x) || x == INFINITY; });
  require(wrong == logits.end(), "sample: logit ", wrong - logits.begin(), " is ", wrong == logits.end() ? 0 : *wrong,
          ", expected a number below infinity; are the model's weights finite?");
  const auto largest = std::max_element(logits.begin(), logits.end());
  require(std::isfinite(*largest), "sample: every logit is ", *largest, ", expected one that is finite");
  if (p.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());

  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto larger = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::size_t kept = order.size();
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < kept) {
    kept = static_cast<std::size_t>(p.top_k);
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept) - 1, order.end(), larger);
  }
  auto weight = [&](std::int32_t id) {
    return std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - *largest) / p.temperature);
  };
  if (p.top_p < 1) {
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), larger);
    double total = 0, sum = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weight(order[i]);
    std::size_t n = 0;
    while (n < kept && sum < p.top_p * total) sum += weight(order[n++]);
    kept = std::max<std::size_t>(n, 1);
  }
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weight(order[i]);
  double left = uniform(philox(p.seed, RandomStream::kSampling, row, index)[0]) * total;
  for (std::size_t i = 0; i < kept; ++i)
    if ((left -= weight(order[i])) <= 0) return order[i];
  return order[kept - 1];
}

}  // namespace flashgpt
