#include "data/dataset.h"

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/prepare_state.h"
#include "flashgpt/error.h"
#include "io/json.h"
#include "io/text.h"

namespace flashgpt {

namespace {

constexpr const char* kFormat = "flashgpt-data";
constexpr int kVersion = 1;

std::string meta_path(const std::string& folder) { return folder + "/" + kMetaFile; }

std::uint64_t from_hex(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(ec == std::errc() && end == text.data() + text.size(), "\"", text, "\", expected 16 hex digits");
  return value;
}

OrderedJson json_of(const SplitInfo& split) {
  OrderedJson shards = OrderedJson::array();
  for (const ShardEntry& s : split.shards)
    shards.push_back({{"file", s.file},
                      {"tokens", s.info.tokens},
                      {"documents", s.info.documents},
                      {"text_bytes", s.info.text_bytes},
                      {"checksum", hex_text(s.info.checksum)}});
  return {{"tokens", split.tokens}, {"documents", split.documents}, {"text_bytes", split.text_bytes}, {"shards", shards}};
}

SplitInfo split_of(const Json& j) {
  SplitInfo split;
  for (const Json& s : j.at("shards")) {
    ShardEntry entry{.file = s.at("file").get<std::string>()};
    require(entry.file.find('/') == std::string::npos, "shard \"", entry.file, "\", expected a name in the folder");
    entry.info.tokens = s.at("tokens").get<std::int64_t>();
    entry.info.documents = s.at("documents").get<std::int64_t>();
    entry.info.text_bytes = s.at("text_bytes").get<std::int64_t>();
    entry.info.checksum = from_hex(s.at("checksum").get<std::string>());
    split.add(std::move(entry));
  }
  return split;
}

TokenStream open_split(const std::string& folder, const DatasetInfo& info, const SplitInfo& split, const Tokenizer& tokenizer,
                       Verify verify, std::vector<Shard>& shards) {
  std::vector<TokenSpan> spans;
  for (const ShardEntry& entry : split.shards) {
    const std::string path = folder + "/" + entry.file;
    const Shard& s = shards.emplace_back(Shard::open(path, verify));
    require(s.info().tokenizer.hash == info.tokenizer.hash, path, " was made with the tokenizer ", s.info().tokenizer.name, " (",
            hex_text(s.info().tokenizer.hash), "), expected that of meta.json, ", info.tokenizer.name, " (", hex_text(info.tokenizer.hash),
            "): prepare the data again");
    require(s.info().checksum == entry.info.checksum && s.info().tokens == entry.info.tokens, path,
            " is not the shard that meta.json lists (another size or checksum): prepare the data again");
    spans.push_back(s.tokens());
  }
  if (split.tokens == 0) return {};
  return TokenStream(std::move(spans), tokenizer.token_bytes(), tokenizer.end_of_text());
}

}  // namespace

void SplitInfo::add(ShardEntry shard) {
  tokens += shard.info.tokens;
  documents += shard.info.documents;
  text_bytes += shard.info.text_bytes;
  shards.push_back(std::move(shard));
}

std::uint64_t DatasetInfo::checksum() const {
  Checksum64 sum(tokenizer.hash);
  for (const SplitInfo* split : {&train, &val}) {
    const std::uint64_t count = split->shards.size();
    sum.update(std::as_bytes(std::span(&count, 1)));
    for (const ShardEntry& s : split->shards) sum.update(std::as_bytes(std::span(&s.info.checksum, 1)));
  }
  return sum.value();
}

void write_meta(const std::string& folder, const DatasetInfo& info, const OrderedJson& report) {
  OrderedJson j{{"format", kFormat}, {"version", kVersion}, {"checksum", hex_text(info.checksum())}};
  j["tokenizer"] = OrderedJson{{"name", info.tokenizer.name},
                               {"vocab_size", info.tokenizer.vocab_size},
                               {"end_of_text", info.tokenizer.end_of_text},
                               {"hash", hex_text(info.tokenizer.hash)}};
  j["train"] = json_of(info.train);
  j["val"] = json_of(info.val);
  j["report"] = report;
  write_atomic(meta_path(folder), pretty_json(j));
}

void write_prepare_state(const std::string& folder, const PrepareState& state) {
  const OrderedJson j{{"fingerprint", hex_text(state.fingerprint)}, {"train", json_of(state.train)}, {"val", json_of(state.val)}};
  write_atomic(folder + "/" + kPrepareStateFile, pretty_json(j));
}

PrepareState read_prepare_state(const std::string& folder, std::uint64_t fingerprint) {
  const std::string path = folder + "/" + kPrepareStateFile;
  PrepareState state{.fingerprint = fingerprint};
  try {
    if (!exists(path)) return state;
    const Json j = parse_json(read_file(path), path);
    if (from_hex(j.at("fingerprint").get<std::string>()) != fingerprint) return state;
    PrepareState found{.fingerprint = fingerprint, .train = split_of(j.at("train")), .val = split_of(j.at("val"))};
    for (const SplitInfo* split : {&found.train, &found.val})
      for (const ShardEntry& s : split->shards)
        if (Shard::open(folder + "/" + s.file).info().checksum != s.info.checksum) return state;
    return found;
  } catch (const std::exception&) {  // damaged, of another release, a shard is missing: all is made anew
    return state;
  }
}

DatasetInfo read_meta(const std::string& folder) {
  const std::string path = meta_path(folder);
  require(exists(path), "no ", path, ": expected a folder that `flashgpt data prepare` made; give text files to it first");
  const Json j = parse_json(read_file(path), path);
  DatasetInfo info;
  try {
    require(j.at("format") == kFormat, path, " has format ", j.at("format").dump(), ", expected \"", kFormat, "\"");
    require(j.at("version") == kVersion, path, " has version ", j.at("version").dump(), ", expected ", kVersion,
            ": it was made by another release, prepare the data again");
    const Json& tokenizer = j.at("tokenizer");
    info.tokenizer.name = tokenizer.at("name").get<std::string>();
    info.tokenizer.vocab_size = tokenizer.at("vocab_size").get<std::int64_t>();
    info.tokenizer.end_of_text = tokenizer.at("end_of_text").get<std::int32_t>();
    info.tokenizer.hash = from_hex(tokenizer.at("hash").get<std::string>());
    info.train = split_of(j.at("train"));
    info.val = split_of(j.at("val"));
    require(from_hex(j.at("checksum").get<std::string>()) == info.checksum(), path,
            " is damaged (its checksum differs): prepare the data again");
  } catch (const Json::exception& e) {
    fail(path, " is not what `flashgpt data prepare` writes: ", e.what());
  }
  return info;
}

Dataset::Dataset(const std::string& folder) : info_(read_meta(folder)), tokenizer_(Tokenizer::load(folder)) {
  require(tokenizer_.hash() == info_.tokenizer.hash, folder, "/tokenizer.json is the tokenizer ", tokenizer_.name(), " (",
          hex_text(tokenizer_.hash()), "), expected the one that made the shards, ", info_.tokenizer.name, " (",
          hex_text(info_.tokenizer.hash), "): prepare the data again");
}

Dataset Dataset::open(const std::string& folder, Verify verify) {
  Dataset d(folder);
  d.train_ = open_split(folder, d.info_, d.info_.train, d.tokenizer_, verify, d.shards_);
  d.val_ = open_split(folder, d.info_, d.info_.val, d.tokenizer_, verify, d.shards_);
  require(d.train_.size() > 0, folder, " holds no text to train on: prepare the data again");
  return d;
}

}  // namespace flashgpt
