#include "cli/logits.h"

#include <algorithm>
#include <cstring>

#include "infer/engine.h"
#include "io/safetensors.h"
#include "model/checkpoint.h"
#include "train/engine.h"

namespace flashgpt::cli {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int32_t>;

struct Input {
  std::int64_t rows = 0, length = 0;
  std::vector<Tokens> tokens;       // of each row
  std::vector<std::int64_t> first;  // where they begin in the row
};

Tokens read_ints(const fs::path& path, const StoredTensor& t) {
  require(t.shape.rank == 2 && (t.dtype == Dtype::kI64 || t.dtype == Dtype::kI32), path.string(), ": tensor ", t.name, " is ", t.type, " ",
          t.shape.str(), ", expected I64 or I32 [rows, length]");
  Tokens list(static_cast<std::size_t>(t.shape.numel()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::int64_t wide = 0;
    if (t.dtype == Dtype::kI64) {
      std::memcpy(&wide, t.bytes.data() + i * 8, 8);
    } else {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, t.bytes.data() + i * 4, 4);
      wide = narrow;
    }
    require(wide >= 0 && wide <= INT32_MAX, path.string(), ": tensor ", t.name, " holds ", wide, ", expected an id from 0 on");
    list[i] = static_cast<std::int32_t>(wide);
  }
  return list;
}

Input read_input(const fs::path& path) {
  const SafetensorsFile file(path);
  const StoredTensor& ids = file.at("input_ids");
  const Tokens tokens = read_ints(path, ids);
  Tokens mask(tokens.size(), 1);
  if (const StoredTensor* m = file.find("attention_mask")) {
    require(m->shape == ids.shape, path.string(), ": attention_mask has shape ", m->shape.str(), ", expected ", ids.shape.str());
    mask = read_ints(path, *m);
  }
  Input in{.rows = ids.shape[0], .length = ids.shape[1]};
  require(in.rows > 0 && in.length > 0, path.string(), ": input_ids has shape ", ids.shape.str(), ", expected at least one token");
  for (std::int64_t r = 0; r < in.rows; ++r) {
    const std::int32_t* here = &mask[static_cast<std::size_t>(r * in.length)];
    const auto first = std::find_if(here, here + in.length, [](std::int32_t m) { return m != 0; });
    const auto last = std::find(first, here + in.length, 0);
    require(first != last && std::all_of(last, here + in.length, [](std::int32_t m) { return m == 0; }), path.string(),
            ": attention_mask of row ", r, ", expected one run of ones");
    in.first.push_back(first - here);
    const auto from = tokens.begin() + r * in.length;
    in.tokens.emplace_back(from + (first - here), from + (last - here));
  }
  return in;
}

void infer(const Target& target, ThreadPool& pool, const fs::path& folder, const Input& in, std::vector<float>& logits,
           std::vector<float>& prompt_logits) {
  InferenceEngine engine(target, {.model = load_model_config(folder), .batch = in.rows, .capacity = in.length}, pool);
  load_weights(engine.context(), engine.params(), engine.weights(), folder);
  const std::int64_t vocab = engine.config().model.vocab_size;
  auto put = [&](std::int64_t r, std::int64_t at, std::vector<float>& to) {
    const auto from = engine.logits(r);
    std::copy(from.begin(), from.end(), to.begin() + at * vocab);
  };
  logits.assign(static_cast<std::size_t>(in.rows * in.length * vocab), 0.0f);
  prompt_logits.assign(static_cast<std::size_t>(in.rows * vocab), 0.0f);
  std::vector<std::span<const std::int32_t>> fed(in.tokens.begin(), in.tokens.end());
  engine.feed(fed);
  for (std::int64_t r = 0; r < in.rows; ++r) put(r, r, prompt_logits);
  engine.reset();
  for (std::size_t t = 0; t < static_cast<std::size_t>(in.length); ++t) {
    for (std::size_t r = 0; r < fed.size(); ++r)
      fed[r] = t < in.tokens[r].size() ? std::span(in.tokens[r]).subspan(t, 1) : std::span<const std::int32_t>();
    engine.feed(fed);
    for (std::size_t r = 0; r < fed.size(); ++r)
      if (!fed[r].empty())
        put(static_cast<std::int64_t>(r), static_cast<std::int64_t>(r) * in.length + in.first[r] + static_cast<std::int64_t>(t), logits);
  }
}

// A row's tokens are a document at its start, what is left of it another one without targets.
std::vector<float> evaluate(const Target& target, ThreadPool& pool, const fs::path& folder, const Input& in) {
  const std::int64_t n = in.rows * in.length;
  Engine engine(target, {.model = load_model_config(folder), .micro_batch = in.rows, .context_len = in.length, .train = false}, pool);
  load_weights(engine.context(), engine.params(), engine.weights(), folder);
  Tokens ids(static_cast<std::size_t>(n), 0), targets(ids.size(), -1), positions(ids.size(), 0), bounds;
  for (std::size_t r = 0; r < in.tokens.size(); ++r) {
    const std::size_t start = r * static_cast<std::size_t>(in.length), count = in.tokens[r].size();
    for (std::size_t i = 0; i < static_cast<std::size_t>(in.length); ++i) {
      if (i < count) ids[start + i] = in.tokens[r][i];
      if (i + 1 < count) targets[start + i] = in.tokens[r][i + 1];
      positions[start + i] = static_cast<std::int32_t>(i < count ? i : i - count);
    }
    bounds.push_back(static_cast<std::int32_t>(start));
    bounds.push_back(static_cast<std::int32_t>(start + count));
  }
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  bounds.resize(ids.size() + 1, static_cast<std::int32_t>(n));
  std::vector<float> packed(ids.size()), losses(ids.size(), 0.0f);
  engine.evaluate({ids.data(), targets.data(), positions.data(), bounds.data()}, packed.data());
  for (std::size_t r = 0; r < in.tokens.size(); ++r) {
    const std::size_t start = r * static_cast<std::size_t>(in.length), shift = start + static_cast<std::size_t>(in.first[r]);
    for (std::size_t i = 0; i + 1 < in.tokens[r].size(); ++i) losses[shift + i + 1] = packed[start + i];
  }
  return losses;
}

}  // namespace

void write_logits(const Target& target, ThreadPool& pool, const fs::path& model, const fs::path& tokens, const fs::path& out) {
  const Input in = read_input(tokens);
  std::vector<float> logits, prompt_logits;
  infer(target, pool, model, in, logits, prompt_logits);
  const std::vector<float> losses = evaluate(target, pool, model, in);
  const std::int64_t vocab = static_cast<std::int64_t>(prompt_logits.size()) / in.rows;
  SafetensorsWriter file(out, {{.name = "logits", .shape = {in.rows, in.length, vocab}},
                               {.name = "prompt_logits", .shape = {in.rows, vocab}},
                               {.name = "losses", .shape = {in.rows, in.length}}});
  file.add("logits", logits.data(), logits.size() * sizeof(float));
  file.add("prompt_logits", prompt_logits.data(), prompt_logits.size() * sizeof(float));
  file.add("losses", losses.data(), losses.size() * sizeof(float));
  file.commit();
}

}  // namespace flashgpt::cli
