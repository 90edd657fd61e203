#include "data/prepare.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "core/threads.h"
#include "data/tokenizer/bpe_training.h"
#include "data/tokenizer/encode_stream.h"
#include "data/tokenizer/tokenizer_json.h"
#include "flashgpt/error.h"

namespace flashgpt {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;  // text encoded at a time
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::size_t kProbe = std::size_t{64} << 10;        // beginning of a file: is it text, which side
constexpr std::int64_t kCutSearch = std::int64_t{64} << 10;  // how far back from a cut a newline is looked for
constexpr std::int64_t kBytePieces = 256, kMostIds = 4'000'000;
constexpr std::int64_t kFewDocuments = 2;  // on either side: fewer, and ends are held out instead

struct Document {
  InputFile file;
  std::int64_t bytes = 0;  // taken, from the beginning
  std::uint64_t hash = 0;  // of its beginning and size
  std::int64_t cut = 0;    // bytes of training; the rest is held out
};

class TextFile {
 public:
  explicit TextFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {}
  ~TextFile() {
    if (file_) std::fclose(file_);
  }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  explicit operator bool() const { return file_ != nullptr; }
  void seek(std::int64_t to) { require(fseeko(file_, to, SEEK_SET) == 0, "cannot read ", path_, ": ", std::strerror(errno)); }
  // Up to n bytes; fewer at the end of the file.
  std::string_view read(std::string& buffer, std::size_t n) {
    buffer.resize(n);
    errno = 0;
    const std::size_t got = std::fread(buffer.data(), 1, n, file_);
    require(got == n || !std::ferror(file_), "cannot read ", path_, ": ", std::strerror(errno));
    return {buffer.data(), got};
  }

 private:
  std::string path_;
  std::FILE* file_;
};

// Looks into each file: empty, unreadable and binary ones are left out, the others get the hash that decides their side.
class Finder {
 public:
  Finder(const PrepareOptions& options, PrepareReport& report) : options_(options), report_(report) {}

  std::vector<Document> documents() {
    FileList list = find_files(options_.inputs, options_.filter, options_.out);
    report_.skipped = std::move(list.skipped);
    std::vector<std::size_t> order(list.files.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    // A sample takes documents from everywhere, not the first folders.
    if (options_.max_bytes > 0)
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return name_hash(list, a) < name_hash(list, b); });

    std::vector<std::pair<std::size_t, Document>> taken;
    std::int64_t room = options_.max_bytes > 0 ? options_.max_bytes : INT64_MAX;
    for (std::size_t i : order) {
      if (room == 0) break;
      if (std::optional<Document> d = look(list.files[i])) {
        d->bytes = std::min(d->bytes, room);
        room -= d->bytes;
        taken.emplace_back(i, std::move(*d));
      }
    }
    std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const InputFile& f : list.files) report_.found_bytes += f.size;
    report_.found_files = static_cast<std::int64_t>(list.files.size());
    std::vector<Document> out;
    for (auto& [i, d] : taken) out.push_back(std::move(d));
    return out;
  }

 private:
  static std::uint64_t name_hash(const FileList& list, std::size_t i) { return checksum64(list.files[i].name); }

  std::optional<Document> look(const InputFile& f) {
    const auto skip = [&](const char* reason) {
      add_skipped(report_.skipped, reason, f.path);
      return std::nullopt;
    };
    if (f.size == 0) return skip("empty");
    TextFile file(f.path);
    if (!file) {
      require(!f.named, "cannot read ", f.path, ": ", std::strerror(errno), ", expected a readable text file");
      return skip("not readable");
    }
    const std::string_view head = file.read(buffer_, kProbe);
    if (head.empty()) return skip("empty");
    if (!options_.binary && head.find('\0') != head.npos) {
      require(
          !f.named, f.path,
          " has NUL bytes, so it is binary or UTF-16: convert it (iconv -f UTF-16 -t UTF-8), or take it as it is with the binary option");
      return skip("binary");
    }
    return Document{
        .file = f, .bytes = f.size, .hash = checksum64(head) ^ std::rotl(static_cast<std::uint64_t>(f.size) * 0x9E3779B97F4A7C15u, 31)};
  }

  const PrepareOptions& options_;
  PrepareReport& report_;
  std::string buffer_;
};

double side(std::uint64_t hash) { return static_cast<double>((hash * 0xD6E8FEB86659FD93u) >> 11) * 0x1p-53; }

// Where the training part of a document ends: after the last newline before the wanted place, else between two characters.
std::int64_t cut_of(const Document& d, double val_fraction) {
  if (d.bytes < 2) return d.bytes;
  const double wanted = static_cast<double>(d.bytes) * (1 - val_fraction);
  const std::int64_t at = std::clamp(static_cast<std::int64_t>(std::llround(wanted)), std::int64_t{1}, d.bytes - 1);
  // Not so far back that more than twice the fraction would be held out.
  const std::int64_t from = std::max({std::int64_t{0}, at - kCutSearch, at - std::max(d.bytes - at, std::int64_t{1})});
  TextFile file(d.file.path);
  require(static_cast<bool>(file), "cannot read ", d.file.path, ": ", std::strerror(errno));
  std::string buffer;
  file.seek(from);
  const std::string_view text = file.read(buffer, static_cast<std::size_t>(at - from + 1));  // and the first byte that is held out
  if (static_cast<std::int64_t>(text.size()) != at - from + 1) return at;
  const std::size_t newline = text.substr(0, text.size() - 1).rfind('\n');
  if (newline != text.npos) return from + static_cast<std::int64_t>(newline) + 1;
  std::int64_t cut = at;
  while (cut > from + 1 && at - cut < 3 && (static_cast<unsigned char>(text[static_cast<std::size_t>(cut - from)]) & 0xC0) == 0x80) --cut;
  return cut;
}

// Chooses each document's cut. Returns whether ends are held out.
bool split(std::vector<Document>& documents, double val_fraction) {
  std::int64_t total = 0, held = 0, held_documents = 0;
  for (Document& d : documents) {
    const bool val = side(d.hash) < val_fraction;
    d.cut = val ? 0 : d.bytes;
    total += d.bytes;
    if (val) held += d.bytes, ++held_documents;
  }
  if (val_fraction == 0) return false;
  const double share = static_cast<double>(held) / static_cast<double>(total);
  const auto count = static_cast<std::int64_t>(documents.size());
  if (held_documents >= kFewDocuments && count - held_documents >= kFewDocuments && share >= val_fraction / 2 && share <= 2 * val_fraction)
    return false;
  held = 0;
  for (Document& d : documents) {
    d.cut = cut_of(d, val_fraction);
    held += d.bytes - d.cut;
  }
  if (held > 0) return true;
  // Documents of one byte cannot be cut.
  require(count > 1, "the text is too short to hold some of it out (", total, total == 1 ? " byte" : " bytes",
          "): give more text, or val_fraction = 0 to train without validation");
  std::min_element(documents.begin(), documents.end(), [](const Document& a, const Document& b) {
    return side(a.hash) < side(b.hash);
  })->cut = 0;
  return false;
}

// " (left out: 3 empty, such as a.txt; ...)"
std::string skipped_text(const std::vector<Skipped>& skipped) {
  std::string text;
  for (const Skipped& s : skipped) text += cat(text.empty() ? " (left out: " : "; ", s.files, " ", s.reason, ", such as ", s.example);
  return text.empty() ? ": it has no files" : text + ")";
}

// Learns a tokenizer from what is trained on; of more than learn_bytes, from blocks chosen by a hash, all over it.
Tokenizer learn_tokenizer(const std::vector<Document>& documents, const PrepareOptions& options, ThreadPool& pool, PrepareReport& report) {
  for (const Document& d : documents) report.learned_of += d.cut;
  const double share = static_cast<double>(options.learn_bytes) / static_cast<double>(std::max<std::int64_t>(1, report.learned_of));
  WordCounter counter(options.words, pool);
  std::string buffer;
  for (const Document& d : documents) {
    TextFile file(d.file.path);
    require(static_cast<bool>(file), "cannot read ", d.file.path, ": ", std::strerror(errno));
    for (std::int64_t at = 0; at < d.cut; at += static_cast<std::int64_t>(kBlock)) {
      if (share < 1 && side(checksum64(std::as_bytes(std::span(&at, 1)), d.hash)) >= share) {
        counter.end_document();
        continue;
      }
      file.seek(at);
      const std::string_view text = file.read(buffer, std::min(kBlock, static_cast<std::size_t>(d.cut - at)));
      counter.append(text);
      report.learned_bytes += static_cast<std::int64_t>(text.size());
    }
    counter.end_document();
  }
  const LearnedBpe bpe = learn_bpe(counter.finish(), options.vocab_size - 1);
  return Tokenizer::parse(byte_level_json(options.words, bpe.pieces, bpe.merges, kEndOfText), "the tokenizer that was learned");
}

enum Part : std::uint8_t { kTrain, kVal };

// The shards of one side.
class Side {
 public:
  Side(const PrepareOptions& options, const Tokenizer& tokenizer, const char* name, SplitInfo& out)
      : options_(options), tokenizer_(tokenizer), name_(name), out_(out) {}

  void append(std::span<const std::int32_t> ids, std::int64_t text_bytes) {
    if (!writer_) writer_ = std::make_unique<ShardWriter>((fs::path(options_.out) / file_name()).string(), tokenizer_.info());
    writer_->append(ids, text_bytes);
  }
  void end_document() {
    writer_->end_document();
    if (writer_->tokens() >= options_.shard_tokens) end_shard();
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
  require(o.shard_tokens >= 1, "shard_tokens = ", o.shard_tokens, ", expected at least 1");
  require(o.vocab_size == 0 || (o.vocab_size > kBytePieces && o.vocab_size <= kMostIds), "vocab_size = ", o.vocab_size, ", expected from ",
          kBytePieces + 1, " (bytes and end-of-text) to ", kMostIds);
  require(o.vocab_size == 0 || o.words != SplitRule::kNone, "words = none, expected a rule that cuts text into words");
  require(o.learn_bytes >= 1, "learn_bytes = ", o.learn_bytes, ", expected at least 1");
}

void check_room(const PrepareOptions& o, std::int64_t bytes, std::int64_t documents) {
  const std::int64_t needed = (bytes + documents) * token_width(std::max(o.vocab_size, o.tokenizer.vocab_size())) + 8 * documents;
  const auto room = static_cast<std::int64_t>(free_bytes(o.out));
  require(room >= needed, "too little room in ", o.out, ": the shards need ", needed, " bytes and ", room,
          " are free; choose another folder or give max_bytes");
}

// Shards of an earlier call that the new meta.json does not name, and what one that was killed left half written.
void remove_left_overs(const std::string& folder, const DatasetInfo& info) {
  const auto named = [&](const std::string& file) {
    const auto is = [&](const ShardEntry& s) { return s.file == file; };
    return std::any_of(info.train.shards.begin(), info.train.shards.end(), is) ||
           std::any_of(info.val.shards.begin(), info.val.shards.end(), is);
  };
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string file = entry.path().filename().string();
    const bool ours = (file.starts_with("train-") || file.starts_with("val-")) && file.ends_with(".shard");
    const bool half = (file.starts_with(".train-") || file.starts_with(".val-")) && file.find(".shard.tmp.") != file.npos;
    if (half || (ours && !named(file))) fs::remove(entry.path(), ec);
  }
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options) {
  check(options);
  PrepareReport report;
  std::vector<Document> documents = Finder(options, report).documents();
  require(!documents.empty(), "no text found in ", options.inputs.front(), options.inputs.size() > 1 ? " ..." : "",
          skipped_text(report.skipped));
  report.ends_held_out = split(documents, options.val_fraction);

  std::int64_t total = 0, done = 0;
  for (const Document& d : documents) total += d.bytes;
  make_directories(options.out);
  check_room(options, total, static_cast<std::int64_t>(documents.size()));
  std::error_code ec;
  fs::remove(fs::path(options.out) / kMetaFile, ec);  // until the new one is there, the folder holds no data set

  ThreadPool pool(options.threads > 0 ? options.threads : default_threads(), false);
  const Tokenizer tokenizer = options.vocab_size > 0 ? learn_tokenizer(documents, options, pool, report) : options.tokenizer;
  DatasetInfo& info = report.info;
  info.tokenizer = tokenizer.info();
  Side train(options, tokenizer, "train", info.train), val(options, tokenizer, "val", info.val);
  EncodeStream stream(tokenizer, pool, [&](std::span<const std::int32_t> ids, std::int64_t text_bytes, bool ends, int tag) {
    Side& side = tag == kTrain ? train : val;
    side.append(ids, text_bytes);
    if (ends) side.end_document();
  });
  std::string buffer;
  for (const Document& d : documents) {
    TextFile file(d.file.path);
    require(static_cast<bool>(file), "cannot read ", d.file.path, ": ", std::strerror(errno));
    for (std::int64_t at = 0; at < d.bytes;) {
      const std::int64_t part_end = at < d.cut ? d.cut : d.bytes;
      if (at == d.cut) stream.end_document(kTrain);
      const std::string_view text = file.read(buffer, std::min(kBlock, static_cast<std::size_t>(part_end - at)));
      if (text.empty()) break;  // the file became shorter meanwhile
      stream.append(text, at < d.cut ? kTrain : kVal);
      at += static_cast<std::int64_t>(text.size());
      done += static_cast<std::int64_t>(text.size());
      if (options.progress) options.progress(done, total);
    }
    stream.end_document(d.cut == d.bytes ? kTrain : kVal);
  }
  stream.finish();
  train.end_shard();
  val.end_shard();
  require(info.train.tokens > 0, "all text was held out: val_fraction = ", options.val_fraction, ", expected less");

  tokenizer.save(options.out);
  write_meta(options.out, info);
  remove_left_overs(options.out, info);
  return report;
}

std::string summary(const PrepareReport& r) {
  const auto line = [](const char* what, const SplitInfo& s) {
    return cat(what, s.documents, s.documents == 1 ? " document, " : " documents, ", s.tokens, " tokens, ", s.text_bytes,
               " bytes of text, ", s.shards.size(), s.shards.size() == 1 ? " shard\n" : " shards\n");
  };
  std::string text = cat("files       ", r.found_files, " found, ", r.found_bytes, " bytes\n");
  text += line("train       ", r.info.train) + line("validation  ", r.info.val);
  if (r.ends_held_out) text += "            (the end of each document: too few to hold out whole ones)\n";
  for (const Skipped& s : r.skipped) text += cat("left out    ", s.files, " ", s.reason, ", such as ", s.example, "\n");
  char checksum[17];
  std::snprintf(checksum, sizeof checksum, "%016llx", static_cast<unsigned long long>(r.info.checksum()));
  text += cat("tokenizer   ", r.info.tokenizer.name, ", ", r.info.tokenizer.vocab_size, " ids");
  if (r.learned_of > 0)
    text += cat(", learned from ", r.learned_bytes < r.learned_of ? cat(r.learned_bytes, " of ") : "all ", r.learned_of,
                " bytes of the training text");
  const std::int64_t tokens = r.info.train.tokens + r.info.val.tokens - r.info.train.documents - r.info.val.documents;
  const double bytes = static_cast<double>(r.info.train.text_bytes + r.info.val.text_bytes);
  char rate[64];
  std::snprintf(rate, sizeof rate, ", %.3g bytes a token", bytes / static_cast<double>(std::max<std::int64_t>(1, tokens)));
  return text + rate + cat("\nchecksum    ", checksum, "\n");
}

}  // namespace flashgpt
