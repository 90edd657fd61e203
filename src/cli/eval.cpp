// flashgpt eval
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/eval_text.h"
#include "cli/help.h"
#include "cli/logits.h"
#include "cli/settings.h"
#include "io/file.h"
#include "io/json.h"
#include "io/terminal.h"
#include "io/text.h"
#include "model/checkpoint.h"
#include "train/evaluation.h"

namespace flashgpt::cli {
namespace {

enum class Split { kVal, kTrain };

OrderedJson json_of(const EvalBucket& b) {
  return {{"targets", b.targets}, {"loss", b.loss()}, {"perplexity", b.perplexity()}, {"bits_per_byte", b.bits_per_byte()}};
}

OrderedJson json_of(const std::vector<EvalBucket>& buckets) {
  OrderedJson out = OrderedJson::array();
  for (const EvalBucket& b : buckets) {
    OrderedJson one = {{"from", b.from}, {"to", b.to}};
    one.update(json_of(b));
    out.push_back(one);
  }
  return out;
}

void print_buckets(const char* title, const std::vector<EvalBucket>& buckets) {
  std::printf("\n%-22s %12s %9s %11s %14s\n", title, "targets", "loss", "perplexity", "bits per byte");
  for (const EvalBucket& b : buckets)
    std::printf("%-22s %12lld %9.4f %11.3f %14s\n", cat(b.from, " .. ", b.to).c_str(), static_cast<long long>(b.targets), b.loss(),
                b.perplexity(), std::isnan(b.bits_per_byte()) ? "-" : fixed_text(b.bits_per_byte(), 4).c_str());
}

}  // namespace

int eval(const std::vector<std::string>& args) {
  Settings s;
  EvalOptions options;
  Split split = Split::kVal;
  std::string field = "text";
  std::int64_t context_len = 0, micro_batch = 0;
  bool json = false;
  std::string tokens, logits_out;
  OptionTable table;
  add_machine_options(table, s);
  table.title("", "Options");
  table.add({.key = "data",
             .field = &s.data,
             .help = "as a PATH; of a folder of `flashgpt data prepare` the part that --split names is used",
             .value_name = "PATH",
             .path = true});
  table.add({.key = "split", .field = choice(split), .help = "part of prepared data", .words = {{"val", 0}, {"train", 1}}});
  table.add({.key = "text_field", .field = &field, .help = "JSON lines: the key of the text", .value_name = "KEY"});
  table.add({.key = "context_len", .field = &context_len, .help = "tokens of a window", .min = 0, .max = 0x1p31, .words = {{"model", 0}}});
  table.add({.key = "mode",
             .field = choice(options.mode),
             .help =
                 "blocks: the text is cut every context-len tokens, as in a training's validation; sliding: a window moves through each "
                 "document by stride, and only targets not seen before count",
             .words = {{"blocks", 0}, {"sliding", 1}}});
  table.add({.key = "stride",
             .field = &options.stride,
             .help = "sliding: tokens between windows; every target then has at least context-len - stride + 1 tokens of context, or all "
                     "there are",
             .min = 0,
             .words = {{"half", 0}}});
  table.add({.key = "windows", .field = &options.max_windows, .help = "windows, spread over the text", .min = 0, .words = {{"all", 0}}});
  table.add({.key = "micro_batch",
             .field = &micro_batch,
             .help = "rows of context-len tokens at a time",
             .min = 0,
             .max = 1 << 20,
             .words = {{"auto", 0}}});
  table.add({.key = "json", .field = &json, .help = "one line of JSON instead of text"});
  table.add({.key = "tokens",
             .field = &tokens,
             .help = "instead of text, for comparison with other programs: token ids, input_ids [rows, length] of a safetensors file",
             .value_name = "FILE",
             .path = true});
  table.add({.key = "logits_out",
             .field = &logits_out,
             .help = "where the logits after each of these tokens go, a safetensors file",
             .value_name = "FILE",
             .path = true});
  const Arguments arguments = table.split(args);
  if (show_help(
          arguments,
          "usage: flashgpt eval MODEL PATH...\n\nLoss, perplexity and bits per byte of a model: as a whole, by how much context a token "
          "had, and by the length of its\ndocument. PATH: text files, folders or patterns (each file is a document), JSON lines "
          "(*.jsonl, each line is a\ndocument), all of them plain, gzip or zstd; or a folder of `flashgpt data prepare`.",
          table))
    return 0;
  table.apply(arguments);
  std::vector<std::string> inputs(arguments.positionals.begin() + !arguments.positionals.empty(), arguments.positionals.end());
  if (!s.data.empty()) inputs.push_back(s.data);
  if (arguments.positionals.size() == 1 && inputs.empty() && !tokens.empty() && !logits_out.empty()) {
    const Target target = target_of(s);
    write_logits(target, *pool_of(target), model_folder(arguments.positionals[0]), tokens, logits_out);
    return 0;
  }
  if (!tokens.empty() || !logits_out.empty())
    throw Error(ErrorCode::kUsage, cat("--tokens = \"", tokens, "\", --logits-out = \"", logits_out,
                                       "\", expected both or none, a model, and no text beside them"));
  if (arguments.positionals.empty() || inputs.empty())
    throw Error(ErrorCode::kUsage, "eval: expected a model folder and text or prepared data; flashgpt eval --help says more");
  if (options.mode == EvalMode::kBlocks && options.stride != 0)
    throw Error(ErrorCode::kUsage, cat("--stride = ", options.stride, ", but blocks do not overlap: --mode sliding"));
  const std::string folder = model_folder(arguments.positionals[0]);
  const Tokenizer tokenizer = Tokenizer::load(folder);

  EngineConfig config{.model = load_model_config(folder), .train = false};
  config.context_len = context_len > 0 ? context_len : config.model.context_len;
  require(config.model.family != Family::kGpt2 || config.context_len <= config.model.context_len, "context_len = ", config.context_len,
          ", but the model has learned positions for ", config.model.context_len, " tokens");
  config.micro_batch = micro_batch > 0 ? micro_batch : std::max<std::int64_t>(1, 4096 / config.context_len);

  std::optional<Dataset> data;
  std::optional<EvalText> text;
  if (inputs.size() == 1 && exists(std::filesystem::path(inputs[0]) / kMetaFile)) {
    data.emplace(Dataset::open(inputs[0]));
    require(split == Split::kTrain || data->has_val(), inputs[0], ": holds no validation part; --split train uses the other");
    require(tokenizer.hash() == data->tokenizer().hash(), inputs[0], ": was prepared with another tokenizer than that of ", folder);
  } else {
    text.emplace(read_eval_text(inputs, field, tokenizer));
  }
  const TokenStream& stream = text ? text->stream : split == Split::kVal ? data->val() : data->train();

  const Target target = target_of(s);
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  Engine engine(target, config, *pool);
  load_weights(engine.context(), engine.params(), engine.weights(), folder);
  Progress progress(2);
  if (progress.live())
    options.progress = [&](std::int64_t done, std::int64_t all) { progress.update(cat("window ", done, " of ", all), done == all); };
  const EvalReport r = evaluate(engine, config, stream, options);
  progress.finish();
  require(r.all.targets > 0, "there is nothing to predict: every document has fewer than one token of text");

  const bool sliding = options.mode == EvalMode::kSliding;
  if (json) {
    OrderedJson out = json_of(r.all);
    out.update(OrderedJson{{"context_len", config.context_len},
                           {"mode", sliding ? "sliding" : "blocks"},
                           {"least_context", sliding ? r.least_context : 1},
                           {"windows", r.windows},
                           {"documents", r.documents},
                           {"by_context", json_of(r.by_context)},
                           {"by_document_length", json_of(r.by_document)}});
    std::printf("%s\n", compact_json(out).c_str());
    return 0;
  }
  std::printf("loss %.5f   perplexity %.4f   bits per byte %s\n%lld targets of %lld documents, %lld windows of up to %lld tokens, %s\n",
              r.all.loss(), r.all.perplexity(),
              std::isnan(r.all.bits_per_byte()) ? "not available" : fixed_text(r.all.bits_per_byte(), 4).c_str(),
              static_cast<long long>(r.all.targets), static_cast<long long>(r.documents), static_cast<long long>(r.windows),
              static_cast<long long>(config.context_len),
              sliding ? cat("sliding: at least ", r.least_context, " tokens of context where the document has them").c_str()
                      : "blocks: context starts anew with each");
  print_buckets("tokens of context", r.by_context);
  print_buckets("tokens of document", r.by_document);
  return 0;
}

}  // namespace flashgpt::cli
