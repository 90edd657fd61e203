// flashgpt generate
#include "infer/generate.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "data/tokenizer.h"
#include "io/text.h"
#include "model/checkpoint.h"

namespace flashgpt::cli {
namespace {

// One row of the batch: its text so far, what of it has been shown.
struct Row {
  Utf8Stream utf8;
  std::string text;  // whole characters, not yet shown when a stop text could still begin in them
  std::string shown;
};

}  // namespace

int generate(const std::vector<std::string>& args) {
  Settings s;
  GenerateParams params;
  params.sampling.temperature = 0.8;
  std::string prompt, stop;
  std::int64_t samples = 1, capacity = 0;
  bool echo = true;
  OptionTable table;
  add_machine_options(table, s);
  table.add({.key = "prompt", .field = &prompt, .help = "text to continue; '-' reads it from standard input"});
  table.add({.key = "samples", .field = &samples, .help = "continuations, made in one batch", .min = 1, .max = 1 << 12});
  table.add({.key = "max_new_tokens", .field = &params.max_new_tokens, .help = "tokens to make", .min = 0, .max = 0x1p31});
  table.add({.key = "temperature", .field = &params.sampling.temperature, .help = "0 takes the likeliest token", .min = 0});
  table.add({.key = "top_k", .field = &params.sampling.top_k, .help = "only the k likeliest tokens", .min = 0, .words = {{"all", 0}}});
  table.add({.key = "top_p",
             .field = &params.sampling.top_p,
             .help = "only the likeliest tokens that add up to p",
             .min = 0,
             .max = 1,
             .above_min = true});
  table.add({.key = "seed", .field = &params.sampling.seed, .help = "of sampling"});
  table.add({.key = "stop", .field = &stop, .help = "text that ends a continuation"});
  table.add({.key = "capacity",
             .field = &capacity,
             .help = "tokens that the cache holds, prompt included",
             .min = 0,
             .max = 0x1p31,
             .words = {{"auto", 0}}});
  table.add({.key = "echo", .field = &echo, .help = "show the prompt too"});
  const Arguments arguments = table.split(args);
  if (show_help(
          arguments,
          "usage: flashgpt generate MODEL [PROMPT...] [--prompt TEXT]\n\nMODEL: a model folder, such as RUN/final. Several prompts are continued in one batch.",
          table))
    return 0;
  table.apply(arguments);
  if (arguments.positionals.empty())
    throw Error(ErrorCode::kUsage, "generate: expected a model folder; flashgpt generate --help says more");
  if (prompt.empty() && arguments.positionals.size() < 2)
    throw Error(ErrorCode::kUsage, "generate: expected text to continue: --prompt TEXT, or after the model");
  const std::string folder = model_folder(arguments.positionals[0]);
  if (prompt == "-") {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    require(!prompt.empty(), "prompt: standard input is empty, expected text to continue");
  }

  const ModelConfig model = load_model_config(folder);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  std::vector<std::string> prompts(arguments.positionals.begin() + 1, arguments.positionals.end());
  if (!prompt.empty()) prompts.insert(prompts.begin(), prompt);
  std::vector<std::vector<std::int32_t>> ids;  // each prompt `samples` times
  std::int64_t prompt_tokens = 0;
  for (const std::string& p : prompts) {
    const std::vector<std::int32_t> one = tokenizer.encode_prompt(p);
    prompt_tokens = std::max(prompt_tokens, static_cast<std::int64_t>(one.size()));
    ids.insert(ids.end(), static_cast<std::size_t>(samples), one);
  }
  auto prompt_of = [&](std::size_t row) { return prompts[row / static_cast<std::size_t>(samples)]; };
  if (capacity == 0) {
    capacity = prompt_tokens + params.max_new_tokens;
    if (model.family == Family::kGpt2) capacity = std::min(capacity, model.context_len);
  }
  require(prompt_tokens <= capacity, "prompt: ", prompt_tokens, " tokens, but there is room for ", capacity);
  params.end_of_text = tokenizer.end_of_text();
  const std::vector<std::int32_t>& stops = tokenizer.stops();

  const Target target = target_of(s);
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  InferenceEngine engine(target, {.model = model, .batch = static_cast<std::int64_t>(ids.size()), .capacity = capacity}, *pool);
  load_weights(engine.context(), engine.params(), engine.weights(), folder);

  std::vector<Row> rows(ids.size());
  const bool streams = rows.size() == 1;  // several rows would mix on the screen
  auto show = [&](Row& row, std::size_t keep_back) {
    if (row.text.size() <= keep_back) return;
    std::size_t n = row.text.size() - keep_back;
    while (n > 0 && (static_cast<unsigned char>(row.text[n]) & 0xC0) == 0x80) --n;  // not inside a character
    row.shown += row.text.substr(0, n);
    if (streams) {
      std::fwrite(row.text.data(), 1, n, stdout);
      std::fflush(stdout);
    }
    row.text.erase(0, n);
  };
  if (streams && echo) std::fputs(prompts[0].c_str(), stdout);
  const std::vector<StopReason> reasons = generate(engine, ids, params, [&](std::int64_t r, std::int32_t token) {
    if (std::ferror(stdout)) return false;  // nobody gets the rest
    Row& row = rows[static_cast<std::size_t>(r)];
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) return false;
    if (token >= tokenizer.vocab_size()) return true;  // a row of the embedding that stands for nothing, as some models have
    row.text += row.utf8.push(tokenizer.decode(token));
    if (const std::size_t at = stop.empty() ? std::string::npos : row.text.find(stop); at != std::string::npos) {
      row.text.resize(at);
      row.utf8 = {};  // a character cut in half behind it is not shown
      return false;
    }
    show(row, stop.empty() ? 0 : stop.size() - 1);
    return true;
  });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].text += rows[r].utf8.finish();
    show(rows[r], 0);
    if (!streams)
      std::printf("%s--- %zu of %zu\n%s%s", r ? "\n" : "", r + 1, rows.size(), echo ? prompt_of(r).c_str() : "", rows[r].shown.c_str());
    std::fputc('\n', stdout);
  }
  std::fflush(stdout);
  if (const auto full = std::count(reasons.begin(), reasons.end(), StopReason::kCapacity); full > 0)
    std::fprintf(stderr, "%s before max_new_tokens = %lld: %s\n",
                 rows.size() == 1 ? "stopped" : cat(full, " of ", rows.size(), " stopped").c_str(),
                 static_cast<long long>(params.max_new_tokens),
                 model.family == Family::kGpt2 && capacity == model.context_len
                     ? cat("the model has learned positions for ", capacity, " tokens, prompt included").c_str()
                     : cat("the cache holds ", capacity, " tokens, prompt included (--capacity)").c_str());
  return 0;
}

}  // namespace flashgpt::cli
