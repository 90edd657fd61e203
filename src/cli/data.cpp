// flashgpt data prepare
#include <cstdio>

#include "cli/command.h"
#include "cli/help.h"
#include "data/corpora.h"
#include "data/prepare.h"
#include "flashgpt/error.h"
#include "io/options.h"
#include "io/text.h"

namespace flashgpt::cli {

int data(const std::vector<std::string>& args) {
  PrepareOptions options{.out = "data"};
  std::string tokenizer;
  std::int64_t threads = 0;
  bool show_cuts = false;
  OptionTable table;
  table.title("", "Options");
  table.add({.key = "out", .field = &options.out, .help = "folder for shards, tokenizer and meta.json", .path = true});
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
  table.add({.key = "vocab_size",
             .field = &options.vocab_size,
             .help = "learn a byte-level BPE of so many ids from the text; else a token is a byte",
             .min = 0,
             .max = 1 << 28,
             .size = false,
             .words = {{"bytes", 0}}});
  table.add({.key = "words",
             .field = choice(options.words),
             .help = "how the BPE that is learned cuts text into words: as this model's tokenizer does",
             .words = {{"gpt2", static_cast<int>(SplitRule::kGpt2)},
                       {"llama3", static_cast<int>(SplitRule::kLlama3)},
                       {"qwen2", static_cast<int>(SplitRule::kQwen2)},
                       {"qwen3.5", static_cast<int>(SplitRule::kQwen35)}}});
  table.add(
      {.key = "tokenizer", .field = &tokenizer, .help = "a tokenizer.json, or a model folder with one, to take instead", .path = true});
  table.add({.key = "learn_bytes",
             .field = &options.learn_bytes,
             .help = "text that the BPE is learned from; of more, a sample spread over all of it",
             .min = 1,
             .size = true});
  table.add({.key = "threads", .field = &threads, .help = "CPU threads", .min = 0, .max = 4096, .words = {{"auto", 0}}});
  table.add({.key = "split",
             .field = choice(options.split),
             .help = "cut documents longer than max_document: at chapters, sections and paragraphs, or every so many bytes",
             .words = {{"none", static_cast<int>(SplitMode::kNone)},
                       {"fixed", static_cast<int>(SplitMode::kFixed)},
                       {"chapters", static_cast<int>(SplitMode::kChapters)}}});
  table.add({.key = "max_document",
             .field = &options.max_document,
             .help = "bytes of text of a piece, at most",
             .min = static_cast<double>(Splitter::kLeast),
             .max = static_cast<double>(Splitter::kMost),
             .size = true});
  table.add({.key = "format",
             .field = choice(options.format),
             .help = "what files are; auto: JSON Lines by the name (.jsonl, .ndjson), else text; gzip and zstd are seen by themselves",
             .words = {{"auto", static_cast<int>(SourceFormat::kAuto)},
                       {"text", static_cast<int>(SourceFormat::kText)},
                       {"jsonl", static_cast<int>(SourceFormat::kJsonLines)}}});
  table.add({.key = "text_key", .field = &options.text_key, .help = "key of the text in a line of JSON"});
  table.add({.key = "deduplicate", .field = &options.deduplicate, .help = "take equal documents once"});
  table.add({.key = "dry_run", .field = &options.dry_run, .help = "find, survey and cut the text; write nothing"});
  table.add({.key = "show_cuts", .field = &show_cuts, .help = "print every cut: document, byte, kind, what begins there"});
  table.add({.key = "binary", .field = &options.binary, .help = "take files with NUL bytes too"});
  const bool known = !args.empty() && args[0] == "prepare";
  Arguments arguments = table.split({args.begin() + known, args.end()});
  arguments.help |= args.empty();
  if (show_help(
          arguments,
          "usage: flashgpt data prepare [PATH...] [--out DIR]\n\nPATH: files, folders (searched in depth) or patterns; compressed ones (gzip, zstd) too. Each file is a document, or, of JSON Lines, each line. "
          "Without one, text that is\ninstalled on this machine.",
          table))
    return args.empty() ? static_cast<int>(ErrorCode::kUsage) : 0;
  if (!known) throw Error(ErrorCode::kUsage, "data: unknown action '" + args[0] + "', expected prepare");
  table.apply(arguments);
  if (!tokenizer.empty()) {
    if (options.vocab_size > 0)
      throw Error(ErrorCode::kUsage, "data prepare: --tokenizer takes one as it is and --vocab-size learns one: expected one of the two");
    options.tokenizer = Tokenizer::load(tokenizer);
  }
  options.threads = static_cast<int>(threads);
  if (show_cuts)
    options.on_cut = [](const std::string& document, const Cut& cut) {
      std::printf("%s %lld %s: %.*s\n", document.c_str(), static_cast<long long>(cut.offset), cut_name(cut.level),
                  static_cast<int>(cut.title.size()), cut.title.data());
    };
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
