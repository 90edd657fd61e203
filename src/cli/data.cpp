// flashgpt data prepare
#include <cstdio>

#include "cli/command.h"
#include "data/corpora.h"
#include "data/prepare.h"
#include "flashgpt/error.h"
#include "io/options.h"
#include "io/text.h"

namespace flashgpt::cli {

int data(const std::vector<std::string>& args) {
  PrepareOptions options{.out = "data"};
  OptionTable table;
  table.title("", "Options");
  table.add({.key = "out", .field = &options.out, .help = "folder for shards, tokenizer and meta.json"});
  table.add(
      {.key = "val_fraction", .field = &options.val_fraction, .help = "part of the text held out for validation", .min = 0, .max = 0.5});
  table.add({.key = "max_bytes",
             .field = &options.max_bytes,
             .help = "take a sample of whole documents of about so much text",
             .min = 0,
             .size = true,
             .words = {{"all", 0}}});
  table.add({.key = "shard_tokens",
             .field = &options.shard_tokens,
             .help = "a shard ends with the document that reaches this",
             .min = 1,
             .size = true});
  table.add({.key = "binary", .field = &options.binary, .help = "take files with NUL bytes too"});
  const bool known = !args.empty() && args[0] == "prepare";
  const Arguments arguments = table.split({args.begin() + known, args.end()});
  if (arguments.help || args.empty()) {
    std::printf(
        "usage: flashgpt data prepare [PATH...] [--out DIR]\n\nPATH: text files, folders (searched in depth) or patterns; each file is a document. "
        "Without one, text that is\ninstalled on this machine.\n\n%s",
        table.help().c_str());
    return args.empty() ? static_cast<int>(ErrorCode::kUsage) : 0;
  }
  if (!known) throw Error(ErrorCode::kUsage, "data: unknown action '" + args[0] + "', expected prepare");
  table.apply(arguments);
  options.inputs = arguments.positionals;
  if (options.inputs.empty()) {
    const Corpus corpus = default_corpus();
    std::fprintf(stderr, "no path given: taking %s\n", corpus.description.c_str());
    options.inputs = corpus.paths;
    options.filter = corpus.filter;
  }
  std::printf("%s\n", summary(prepare(options)).c_str());
  return 0;
}

}  // namespace flashgpt::cli
