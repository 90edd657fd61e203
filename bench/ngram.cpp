// The yardstick of the demo: an interpolated n-gram model over the same tokens, trained on exactly the rows that a run consumed and scored
// on its validation data. Interpolation by Witten & Bell (1991):
//   P_n(t | c) = (count(c t) + types(c) P_{n-1}(t | shorter c)) / (count(c) + types(c)),   P_0 = 1 / V
// ngram DATA_FOLDER ORDER CONTEXT_LEN SEED ROWS      ROWS = batch_size x steps
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "flashgpt/error.h"

using namespace flashgpt;

namespace {

struct Context {
  double total = 0;
  std::unordered_map<std::int32_t, double> counts;
};

// The last `length` tokens (at most 2, of ids below 2^21) and their number, as one number.
std::uint64_t key(const std::int32_t* end, int length) {
  auto k = static_cast<std::uint64_t>(length);
  for (int i = length; i >= 1; --i) k = k << 21 | static_cast<std::uint64_t>(end[-i]);
  return k;
}

class Ngram {
 public:
  Ngram(int order, std::int64_t vocabulary) : contexts_(static_cast<std::size_t>(order)), uniform_(1.0 / static_cast<double>(vocabulary)) {}

  // history: tokens before `end`, of which `known` belong to the same sequence.
  void add(const std::int32_t* end, std::int64_t known, std::int32_t next) {
    for (std::size_t n = 0; n < contexts_.size() && static_cast<std::int64_t>(n) <= known; ++n) {
      Context& c = contexts_[n][key(end, static_cast<int>(n))];
      c.total += 1;
      c.counts[next] += 1;
    }
  }
  double probability(const std::int32_t* end, std::int64_t known, std::int32_t next) const {
    double p = uniform_;
    for (std::size_t n = 0; n < contexts_.size() && static_cast<std::int64_t>(n) <= known; ++n) {
      const auto found = contexts_[n].find(key(end, static_cast<int>(n)));
      if (found == contexts_[n].end()) break;
      const Context& c = found->second;
      const auto types = static_cast<double>(c.counts.size());
      const auto hit = c.counts.find(next);
      p = ((hit == c.counts.end() ? 0.0 : hit->second) + types * p) / (c.total + types);
    }
    return p;
  }

 private:
  std::vector<std::unordered_map<std::uint64_t, Context>> contexts_;
  double uniform_;
};

// Calls f(end of history, tokens of history in the sequence, next token) for each target of the rows.
template <class Loader, class F> RowCounts each_target(const Loader& loader, std::int64_t rows, F&& f) {
  const std::int64_t t = loader.context_len();
  StepRows one(1, 1, t);
  RowCounts all;
  for (std::int64_t r = 0; r < rows; ++r) {
    all += one.fill(loader, r);
    const RowBuffers b = one.micro(0);
    for (std::int64_t i = 0; i < t; ++i)
      if (b.targets[i] >= 0) f(b.tokens + i + 1, b.positions[i] + 1, b.targets[i]);
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: ngram DATA_FOLDER ORDER CONTEXT_LEN SEED ROWS\n");
    return 2;
  }
  try {
    const Dataset data = Dataset::open(argv[1]);
    const int order = std::atoi(argv[2]);
    require(order >= 1 && order <= 3, "ORDER = ", argv[2], ", expected 1 to 3");
    const std::int64_t context = std::atoll(argv[3]), rows = std::atoll(argv[5]);
    Ngram model(order, data.info().tokenizer.vocab_size);
    const RowCounts trained =
        each_target(TrainLoader(data.train(), context, std::strtoull(argv[4], nullptr, 10)), rows,
                    [&](const std::int32_t* end, std::int64_t known, std::int32_t next) { model.add(end, known, next); });
    double bits = 0;
    // One long row: the yardstick sees across the rows that the model is scored in.
    const ValidationLoader validation(data.val(), 1 << 16);
    const RowCounts scored = each_target(
        validation, validation.rows(),
        [&](const std::int32_t* end, std::int64_t known, std::int32_t next) { bits -= std::log2(model.probability(end, known, next)); });
    std::printf("order %d, %lld tokens of training, %lld scored: %.4f bits per byte\n", order, static_cast<long long>(trained.targets),
                static_cast<long long>(scored.targets), bits / static_cast<double>(scored.text_bytes));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ngram: %s\n", e.what());
    return 1;
  }
}
