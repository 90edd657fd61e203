// flashgpt eval
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/logits.h"
#include "cli/settings.h"
#include "io/json.h"
#include "io/text.h"
#include "model/checkpoint.h"
#include "train/run.h"

namespace flashgpt::cli {

int eval(const std::vector<std::string>& args) {
  Settings s;
  std::int64_t context_len = 0, micro_batch = 0, rows = 0;
  bool json = false;
  std::string tokens, logits_out;
  OptionTable table;
  add_machine_options(table, s);
  table.add({.key = "data", .field = &s.data, .help = "a folder of `flashgpt data prepare`; its validation part is used"});
  table.add(
      {.key = "context_len", .field = &context_len, .help = "tokens of a block; blocks do not overlap", .min = 0, .words = {{"model", 0}}});
  table.add({.key = "micro_batch", .field = &micro_batch, .help = "blocks at a time", .min = 0, .words = {{"auto", 0}}});
  table.add({.key = "rows", .field = &rows, .help = "blocks, spread over the text", .min = 0, .words = {{"all", 0}}});
  table.add({.key = "json", .field = &json, .help = "one line of JSON instead of text"});
  table.add({.key = "tokens", .field = &tokens, .help = "instead of data: token ids, input_ids [rows, length] of a safetensors file"});
  table.add({.key = "logits_out", .field = &logits_out, .help = "where the logits after each of these tokens go, a safetensors file"});
  const Arguments arguments = table.split(args);
  if (arguments.help) {
    std::printf("usage: flashgpt eval MODEL --data DIR\n       flashgpt eval MODEL --tokens FILE --logits-out FILE\n\n%s",
                table.help().c_str());
    return 0;
  }
  table.apply(arguments);
  if (arguments.positionals.size() != 1 || s.data.empty() == tokens.empty() || tokens.empty() != logits_out.empty())
    throw Error(ErrorCode::kUsage,
                "eval: expected a model folder and --data DIR, or --tokens and --logits-out; flashgpt eval --help says more");
  const std::string& folder = arguments.positionals[0];
  if (!tokens.empty()) {
    const Target target = target_of(s);
    write_logits(target, *pool_of(target), folder, tokens, logits_out);
    return 0;
  }
  const Dataset data = Dataset::open(s.data);
  require(data.has_val(), s.data, ": holds no validation part");

  EngineConfig config{.model = load_model_config(folder), .train = false};
  require(Tokenizer::load(folder).hash() == data.tokenizer().hash(), s.data, ": was prepared with another tokenizer than that of ", folder);
  config.context_len = context_len > 0 ? context_len : config.model.context_len;
  config.micro_batch = micro_batch > 0 ? micro_batch : std::max<std::int64_t>(1, 4096 / config.context_len);
  const Target target = target_of(s);
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  Engine engine(target, config, *pool);
  load_weights(engine.context(), engine.params(), engine.weights(), folder);
  const ValidationEvent v = validate(engine, config, data, rows);
  if (json)
    std::printf("%s\n", compact_json(Json{{"loss", v.loss},
                                          {"perplexity", v.perplexity},
                                          {"bits_per_byte", v.bits_per_byte},
                                          {"targets", v.targets},
                                          {"context_len", config.context_len}})
                            .c_str());
  else
    std::printf("loss %.5f   perplexity %.4f   bits per byte %.4f   over %lld targets in blocks of %lld\n", v.loss, v.perplexity,
                v.bits_per_byte, static_cast<long long>(v.targets), static_cast<long long>(config.context_len));
  return 0;
}

}  // namespace flashgpt::cli
