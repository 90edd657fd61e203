#include "data/prepare.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/threads.h"
#include "data/hold_out.h"
#include "data/prepare_state.h"
#include "data/survey.h"
#include "data/tokenizer/bpe_training.h"
#include "data/tokenizer/encode_stream.h"
#include "data/tokenizer/tokenizer_json.h"
#include "flashgpt/error.h"
#include "io/text.h"

namespace flashgpt {

namespace fs = std::filesystem;

namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::int64_t kBytePieces = 256, kMostIds = 4'000'000;

SourceOptions source_of(const PrepareOptions& o) { return {.format = o.format, .text_key = o.text_key, .binary = o.binary}; }

// " (left out: 3 empty, such as a.txt; ...)"
std::string skipped_text(const std::vector<Skipped>& skipped) {
  std::string text;
  for (const Skipped& s : skipped) text += cat(text.empty() ? " (left out: " : "; ", s.files, " ", s.reason, ", such as ", s.example);
  return text.empty() ? ": it has no files" : text + ")";
}

// Learns a tokenizer from what is trained on; of more than learn_bytes, from parts chosen by a hash, all over it.
Tokenizer learn_tokenizer(const Survey& survey, const HeldOut& held_out, const PrepareOptions& options, ThreadPool& pool,
                          PrepareReport& report) {
  const double share = static_cast<double>(options.learn_bytes) / static_cast<double>(std::max<std::int64_t>(1, held_out.train_bytes));
  WordCounter counter(options.words, pool);
  std::uint64_t document = 0;
  std::int64_t at = 0;
  const Visitor visitor{.begin =
                            [&](const SurveyedFile& f, std::size_t n) {
                              document = f.documents[n].hash;
                              at = 0;
                            },
                        .text =
                            [&](std::string_view text, bool held) {
                              if (held) return;
                              const bool taken = share >= 1 || fraction_of(checksum64(std::as_bytes(std::span(&at, 1)), document)) < share;
                              at += static_cast<std::int64_t>(text.size());
                              report.learned_of += static_cast<std::int64_t>(text.size());
                              if (!taken) return counter.end_document();
                              counter.append(text);
                              report.learned_bytes += static_cast<std::int64_t>(text.size());
                            },
                        .end = [&](bool) { counter.end_document(); }};
  walk(survey, held_out, source_of(options), options.split == SplitMode::kChapters, visitor);
  const LearnedBpe bpe = learn_bpe(counter.finish(), options.vocab_size - 1);
  return Tokenizer::parse(byte_level_json(options.words, bpe.pieces, bpe.merges, kEndOfText), "the tokenizer that was learned");
}

enum Part : std::uint8_t { kTrain, kVal };

// The shards of one side, after those in `out`, which an earlier call finished.
class Side {
 public:
  Side(const PrepareOptions& options, const Tokenizer& tokenizer, const char* name, SplitInfo& out)
      : options_(options), tokenizer_(tokenizer), name_(name), out_(out) {}

  void append(std::span<const std::int32_t> ids, std::int64_t text_bytes) {
    if (!writer_) writer_ = std::make_unique<ShardWriter>((fs::path(options_.out) / file_name()).string(), tokenizer_.info());
    writer_->append(ids, text_bytes);
  }
  bool end_document() {  // whether a shard ended with it
    writer_->end_document();
    if (writer_->tokens() < options_.shard_tokens) return false;
    end_shard();
    return true;
  }
  void end_shard() {
    if (!writer_) return;
    out_.add({.file = file_name(), .info = writer_->finish()});
    writer_.reset();
  }

 private:
  std::string file_name() const {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "-%05zu.shard", out_.shards.size());
    return name_ + number.data();
  }

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  std::string name_;
  SplitInfo& out_;
  std::unique_ptr<ShardWriter> writer_;
};

void check(const PrepareOptions& o) {
  require(!o.out.empty(), "out = '', expected the folder for the shards");
  require(o.val_fraction >= 0 && o.val_fraction <= 0.5, "val_fraction = ", o.val_fraction, ", expected from 0 to 0.5");
  require(o.max_bytes >= 0, "max_bytes = ", o.max_bytes, ", expected a number of bytes, or 0 for all");
  require(!o.text_key.empty(), "text_key = '', expected the key of the text in a line of JSON");
  require(o.shard_tokens >= 1, "shard_tokens = ", o.shard_tokens, ", expected at least 1");
  require(o.vocab_size == 0 || (o.vocab_size > kBytePieces && o.vocab_size <= kMostIds), "vocab_size = ", o.vocab_size, ", expected from ",
          kBytePieces + 1, " (bytes and end-of-text) to ", kMostIds);
  require(o.vocab_size == 0 || o.words != SplitRule::kNone, "words = none, expected a rule that cuts text into words");
  require(o.learn_bytes >= 1, "learn_bytes = ", o.learn_bytes, ", expected at least 1");
}

// Shards of earlier calls, which are taken over or removed before new ones are written, and what one that was killed left half written.
std::vector<fs::path> old_shards(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string file = entry.path().filename().string();
    const bool whole = (file.starts_with("train-") || file.starts_with("val-")) && file.ends_with(".shard");
    const bool half = (file.starts_with(".train-") || file.starts_with(".val-")) && file.find(".shard.tmp.") != file.npos;
    if (whole || half) found.push_back(entry.path());
  }
  return found;
}

std::int64_t bytes_of_old_shards(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code ec;
  for (const fs::path& path : old_shards(folder))
    if (const auto size = fs::file_size(path, ec); !ec) bytes += static_cast<std::int64_t>(size);
  return bytes;
}

void check_room(const PrepareOptions& o, const Survey& survey) {
  const std::int64_t cuts = o.split == SplitMode::kNone ? 0 : 2 * survey.bytes / o.max_document;
  const std::int64_t documents = survey.documents + cuts;
  const std::int64_t needed = (survey.bytes + documents) * token_width(std::max(o.vocab_size, o.tokenizer.vocab_size())) + 8 * documents;
  const auto room = static_cast<std::int64_t>(free_bytes(o.out)) + bytes_of_old_shards(o.out);
  require(room >= needed, "too little room in ", o.out, ": the shards need ", needed, " bytes and ", room,
          " are free; choose another folder or give max_bytes");
}

// Removes the shards that are not in these lists.
void remove_left_overs(const std::string& folder, const SplitInfo& train, const SplitInfo& val) {
  for (const fs::path& path : old_shards(folder)) {
    const auto is = [&](const ShardEntry& s) { return s.file == path.filename(); };
    std::error_code ec;
    if (std::none_of(train.shards.begin(), train.shards.end(), is) && std::none_of(val.shards.begin(), val.shards.end(), is))
      fs::remove(path, ec);
  }
}

// Everything that decides the shards.
std::uint64_t fingerprint_of(const PrepareOptions& o, const Survey& survey, const HeldOut& held_out, const Tokenizer& tokenizer) {
  Checksum64 sum(tokenizer.hash());
  const auto add = [&](auto value) { sum.update(std::as_bytes(std::span(&value, 1))); };
  add(o.shard_tokens);
  add(static_cast<std::int64_t>(o.split));
  add(o.split == SplitMode::kNone ? std::int64_t{0} : o.max_document);
  add(static_cast<std::int64_t>(held_out.ends));
  for (const SurveyedFile& f : survey.files) {
    add(static_cast<std::int64_t>(text_kind(f.file.name)));
    for (const SurveyedDocument& d : f.documents) add(d.hash), add(d.bytes);
  }
  sum.update(std::as_bytes(std::span(held_out.train)));
  return sum.value();
}

std::string document_name(const SurveyedFile& f, std::size_t n) {
  return f.documents.size() == 1 ? f.file.path : cat(f.file.path, " #", n + 1);
}

// Reads all documents again, cut into pieces; out(text, part) gets their text, end(part) the end of each.
template <class Text, class End>
void each_piece(const Survey& survey, const HeldOut& held_out, const PrepareOptions& options, Text&& out, End&& end) {
  std::string name;
  TextKind kind{};
  std::int64_t done = 0, at = 0, part_begin = 0;  // at: in the document
  bool open = false;
  const auto splitter_of = [&](Part part) {
    Splitter::Sink sink{.text = [&out, part](std::string_view text) { out(text, part); }, .end_piece = [&end, part] { end(part); }};
    if (options.on_cut)
      sink.cut = [&](Cut cut) {
        cut.offset += part_begin;
        options.on_cut(name, cut);
      };
    return Splitter(options.split, options.max_document, std::move(sink));
  };
  std::array<Splitter, 2> splitters{splitter_of(kTrain), splitter_of(kVal)};
  const Visitor visitor{.begin =
                            [&](const SurveyedFile& f, std::size_t n) {
                              if (options.on_cut) name = document_name(f, n);
                              kind = text_kind(f.file.name);
                              at = 0;
                            },
                        .text =
                            [&](std::string_view text, bool held) {
                              Splitter& splitter = splitters[held ? kVal : kTrain];
                              if (!std::exchange(open, true)) {
                                part_begin = at;
                                splitter.begin(kind);
                              }
                              splitter.append(text);
                              at += static_cast<std::int64_t>(text.size());
                              done += static_cast<std::int64_t>(text.size());
                              if (options.progress) options.progress(done, survey.bytes);
                            },
                        .end =
                            [&](bool held) {
                              splitters[held ? kVal : kTrain].end();
                              open = false;
                            }};
  walk(survey, held_out, source_of(options), options.split == SplitMode::kChapters, visitor);
}

void encode(const PrepareOptions& options, const Survey& survey, const HeldOut& held_out, PrepareReport& report) {
  ThreadPool pool(options.threads > 0 ? options.threads : default_threads(), false);
  const Tokenizer tokenizer = options.vocab_size > 0 ? learn_tokenizer(survey, held_out, options, pool, report) : options.tokenizer;
  PrepareState state = read_prepare_state(options.out, fingerprint_of(options, survey, held_out, tokenizer));
  report.resumed_shards = static_cast<std::int64_t>(state.train.shards.size() + state.val.shards.size());
  std::array<std::int64_t, 2> finished{state.train.documents, state.val.documents};  // pieces that need not be encoded again
  remove_left_overs(options.out, state.train, state.val);

  Side train(options, tokenizer, "train", state.train), val(options, tokenizer, "val", state.val);
  EncodeStream stream(tokenizer, pool, [&](std::span<const std::int32_t> ids, std::int64_t text_bytes, bool ends, int tag) {
    Side& side = tag == kTrain ? train : val;
    side.append(ids, text_bytes);
    if (ends && side.end_document()) write_prepare_state(options.out, state);
  });
  each_piece(
      survey, held_out, options,
      [&](std::string_view text, Part part) {
        if (finished[part] == 0) stream.append(text, part);
      },
      [&](Part part) {
        if (finished[part] > 0)
          --finished[part];
        else
          stream.end_document(part);
      });
  stream.finish();
  train.end_shard();
  val.end_shard();
  report.info.tokenizer = tokenizer.info();
  report.info.train = state.train;
  report.info.val = state.val;
  require(report.info.train.tokens > 0, "all text was held out: val_fraction = ", options.val_fraction, ", expected less");
  for (const SplitInfo* split : {&state.train, &state.val})
    for (const ShardEntry& entry : split->shards) {
      const Shard shard = Shard::open((fs::path(options.out) / entry.file).string(), Verify::kSizes);
      const std::span<const std::uint64_t> starts = shard.document_starts();
      for (std::size_t i = 0; i < starts.size(); ++i) {
        const auto end = i + 1 < starts.size() ? starts[i + 1] : static_cast<std::uint64_t>(entry.info.tokens);
        report.lengths.add(static_cast<std::int64_t>(end - starts[i]) - 1);  // end-of-text is not counted
      }
    }
  tokenizer.save(options.out);
}

double bytes_per_token(const DatasetInfo& info) {
  const std::int64_t tokens = info.train.tokens + info.val.tokens - info.train.documents - info.val.documents;
  return static_cast<double>(info.train.text_bytes + info.val.text_bytes) / static_cast<double>(std::max<std::int64_t>(1, tokens));
}

OrderedJson json_of(const PrepareReport& r, const PrepareOptions& o) {
  OrderedJson skipped = OrderedJson::array();
  for (const Skipped& s : r.skipped) skipped.push_back({{"reason", s.reason}, {"count", s.files}, {"example", s.example}});
  constexpr const char* modes[] = {"none", "fixed", "chapters"};
  OrderedJson j{{"files", r.found_files}, {"file_bytes", r.found_bytes}, {"documents", r.source_documents}};
  j["split"] = modes[static_cast<int>(o.split)];
  if (o.split != SplitMode::kNone) j["max_document"] = o.max_document;
  j["ends_held_out"] = r.ends_held_out;
  j["bytes_per_token"] = bytes_per_token(r.info);
  j["lengths"] = lengths_json(r.lengths);
  j["skipped"] = skipped;
  return j;
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options) {
  check(options);
  PrepareReport report;
  FileList list = find_files(options.inputs, options.filter, options.out);
  report.found_files = static_cast<std::int64_t>(list.files.size());
  for (const InputFile& f : list.files) report.found_bytes += f.size;
  const Survey found =
      survey(list, {.source = source_of(options), .max_bytes = options.max_bytes, .keep_duplicates = !options.deduplicate});
  report.skipped = std::move(list.skipped);
  report.source_documents = found.documents;
  require(found.documents > 0, "no text found in ", options.inputs.front(), options.inputs.size() > 1 ? " ..." : "",
          skipped_text(report.skipped));
  const HeldOut held_out = hold_out(found, options.val_fraction);
  report.ends_held_out = held_out.ends;
  if (options.dry_run) {
    report.dry_run = true;
    std::array<std::int64_t, 2> length{};
    each_piece(
        found, held_out, options, [&](std::string_view text, Part part) { length[part] += static_cast<std::int64_t>(text.size()); },
        [&](Part part) {
          SplitInfo& split = part == kTrain ? report.info.train : report.info.val;
          ++split.documents;
          split.text_bytes += length[part];
          report.lengths.add(std::exchange(length[part], 0));
        });
    return report;
  }
  make_directories(options.out);
  check_room(options, found);
  std::error_code ec;
  fs::remove(fs::path(options.out) / kMetaFile, ec);  // until the new one is there, the folder holds no data set
  encode(options, found, held_out, report);
  write_meta(options.out, report.info, json_of(report, options));
  fs::remove(fs::path(options.out) / kPrepareStateFile, ec);
  remove_left_overs(options.out, report.info.train, report.info.val);
  return report;
}

std::string summary(const PrepareReport& r) {
  const auto line = [&](const char* what, const SplitInfo& s) {
    std::string text = cat(what, s.documents, s.documents == 1 ? " document, " : " documents, ");
    if (!r.dry_run) text += cat(s.tokens, " tokens, ");
    text += cat(s.text_bytes, " bytes of text");
    if (!r.dry_run) text += cat(", ", s.shards.size(), s.shards.size() == 1 ? " shard" : " shards");
    return text + "\n";
  };
  std::string text = cat("files       ", r.found_files, " found, ", r.found_bytes, " bytes");
  text += cat("; ", r.source_documents, r.source_documents == 1 ? " document\n" : " documents\n");
  text += line("train       ", r.info.train) + line("validation  ", r.info.val);
  if (r.ends_held_out) text += "            (the end of each document: too few to hold out whole ones)\n";
  if (r.resumed_shards > 0) text += cat("gone on     after ", r.resumed_shards, " shards of a call that was stopped\n");
  for (const Skipped& s : r.skipped) text += cat("left out    ", s.files, " ", s.reason, ", such as ", s.example, "\n");
  text += lengths_text(r.lengths, r.dry_run ? "bytes" : "tokens");
  if (r.dry_run) return text + "nothing was written: a dry run\n";
  text += cat("tokenizer   ", r.info.tokenizer.name, ", ", r.info.tokenizer.vocab_size, " ids");
  if (r.learned_of > 0)
    text += cat(", learned from ", r.learned_bytes < r.learned_of ? cat(r.learned_bytes, " of ") : "all ", r.learned_of,
                " bytes of the training text");
  text += cat(", ", short_text(bytes_per_token(r.info)), " bytes a token");
  return text + cat("\nchecksum    ", hex_text(r.info.checksum()), "\n");
}

}  // namespace flashgpt
