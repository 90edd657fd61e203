// flashgpt report
#include "train/report.h"

#include <cstdio>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "data/tokenizer.h"
#include "infer/generate.h"
#include "io/file.h"
#include "model/checkpoint.h"

namespace flashgpt::cli {
namespace {

std::vector<ReportSample> make_samples(const std::filesystem::path& folder, const std::string& prompt, std::int64_t samples,
                                       std::int64_t new_tokens, const Target& target) {
  const ModelConfig model = load_model_config(folder);
  const Tokenizer tokenizer = Tokenizer::load(folder.string());
  std::vector<std::int32_t> ids;
  tokenizer.encode(prompt, ids);
  std::int64_t capacity = static_cast<std::int64_t>(ids.size()) + new_tokens;
  if (model.family == Family::kGpt2) capacity = std::min(capacity, model.context_len);
  require(static_cast<std::int64_t>(ids.size()) <= capacity, "prompt: ", ids.size(), " tokens, but there is room for ", capacity);
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  InferenceEngine engine(target, {.model = model, .batch = samples, .capacity = capacity}, *pool);
  load_weights(engine.context(), engine.params(), engine.weights(), folder);
  std::vector<Utf8Stream> utf8(static_cast<std::size_t>(samples));
  std::vector<ReportSample> out(static_cast<std::size_t>(samples), {prompt, ""});
  generate(engine, std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(samples), ids),
           {.sampling = {.temperature = 0.8}, .max_new_tokens = new_tokens, .end_of_text = tokenizer.end_of_text()},
           [&](std::int64_t row, std::int32_t token) {
             const auto r = static_cast<std::size_t>(row);
             out[r].text += utf8[r].push(tokenizer.decode(token));
             return true;
           });
  for (std::size_t r = 0; r < out.size(); ++r) out[r].text += utf8[r].finish();
  return out;
}

}  // namespace

int report(const std::vector<std::string>& args) {
  Settings s;
  std::string out, prompt;
  std::int64_t samples = 2, new_tokens = 200;
  OptionTable table;
  add_machine_options(table, s);
  table.title("", "Options");
  table.add({.key = "out", .field = &out, .help = "the page; RUN/report.html when not given", .value_name = "FILE", .path = true});
  table.add({.key = "prompt", .field = &prompt, .help = "show continuations of this text by RUN/final"});
  table.add({.key = "samples", .field = &samples, .help = "continuations", .min = 1, .max = 64});
  table.add({.key = "max_new_tokens", .field = &new_tokens, .help = "tokens of each", .min = 1, .max = 0x1p31});
  const Arguments arguments = table.split(args);
  if (show_help(
          arguments,
          "usage: flashgpt report RUN\n\nOne HTML page about a run, finished or in progress: loss, held-out loss, learning rate, norm, tokens/s "
          "and memory.\nThe page holds all it needs.",
          table))
    return 0;
  table.apply(arguments);
  limit_positionals(arguments, "report", 1);
  if (arguments.positionals.empty())
    throw Error(ErrorCode::kUsage, "report: expected the folder of a run; flashgpt report --help says more");
  const std::filesystem::path run = arguments.positionals[0], page = out.empty() ? run / "report.html" : std::filesystem::path(out);
  std::vector<ReportSample> made;
  if (!prompt.empty()) {
    require(exists(run / "final"), run.string(), ": has no final/ yet, so there is no model to continue the prompt");
    made = make_samples(run / "final", prompt, samples, new_tokens, target_of(s));
  }
  write_atomic(page, html_report(run, made));
  std::printf("%s\n", page.string().c_str());
  return 0;
}

}  // namespace flashgpt::cli
