#include "data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/tokenizer_json.h"
#include "flashgpt/error.h"
#include "io/file.h"
#include "io/json.h"

namespace flashgpt {

namespace fs = std::filesystem;

namespace {

constexpr const char *kFile = "tokenizer.json", *kConfigFile = "tokenizer_config.json";
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr int kByteValues = 256;
// What well-known vocabularies call the end of a text.
constexpr std::string_view kEndNames[] = {kEndOfText, "<|end_of_text|>", "</s>", "<|eos|>", "<eos>"};

bool is_bytes(const TokenizerModel& m) {
  if (!m.byte_level || !m.merges.empty() || m.split != SplitRule::kNone || m.nfc || m.pieces.size() != kByteValues || m.added.size() != 1)
    return false;
  return m.added[0].id == kByteValues && m.added[0].content == kEndOfText && m.added[0].special;
}

const AddedToken* added_named(const TokenizerModel& m, std::string_view content) {
  const auto found = std::find_if(m.added.begin(), m.added.end(), [&](const AddedToken& t) { return t.content == content; });
  return found == m.added.end() ? nullptr : &*found;
}

std::string added_names(const TokenizerModel& m) {
  std::string names;
  for (std::size_t i = 0; i < m.added.size() && i < 8; ++i) names += cat(i ? ", " : "", m.added[i].content);
  return names.empty() ? "none" : names + (m.added.size() > 8 ? ", ..." : "");
}

// Ids that end a text, from the files beside tokenizer.json; empty when they say nothing.
std::vector<std::int32_t> stops_beside(const fs::path& folder, const TokenizerModel& m) {
  std::vector<std::int32_t> stops;
  const auto add = [&](std::int64_t id, const fs::path& file) {
    require(id >= 0 && id < m.vocab_size(), file.string(), ": eos_token_id = ", id, ", expected an id below the vocabulary of ",
            m.vocab_size());
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(static_cast<std::int32_t>(id));
  };
  if (const fs::path file = folder / kConfigFile; exists(file)) {
    const Json j = parse_json(read_file(file), file.string());
    if (j.is_object() && j.contains("eos_token")) {
      Json eos = j["eos_token"];
      if (eos.is_object() && eos.contains("content")) eos = Json(eos["content"]);
      if (eos.is_string()) {
        const auto name = eos.get<std::string>();
        const AddedToken* token = added_named(m, name);
        const auto piece = name.empty() ? m.pieces.end() : std::find(m.pieces.begin(), m.pieces.end(), name);
        require(token || piece != m.pieces.end(), file.string(), ": eos_token is ", name,
                ", expected one of the added tokens: ", added_names(m));
        add(token ? token->id : piece - m.pieces.begin(), file);
      }
    }
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = folder / name;
    if (!exists(file)) continue;
    const Json j = parse_json(read_file(file), file.string());
    if (!j.is_object() || !j.contains("eos_token_id") || j["eos_token_id"].is_null()) continue;
    const Json ids = j["eos_token_id"].is_array() ? j["eos_token_id"] : Json::array({j["eos_token_id"]});
    for (const Json& id : ids) {
      require(id.is_number_integer(), file.string(), ": eos_token_id is ", id.dump(), ", expected an id or a list of ids");
      add(id.get<std::int64_t>(), file);
    }
    break;
  }
  return stops;
}

class Hash {
 public:
  explicit Hash(std::int32_t end_of_text) : sum_(static_cast<std::uint64_t>(end_of_text)) {}
  void add(std::string_view s) {
    const std::uint64_t size = s.size();
    sum_.update(std::as_bytes(std::span(&size, 1)));
    sum_.update(std::as_bytes(std::span(s)));
  }
  template <class T> void add_values(std::span<const T> values) { sum_.update(std::as_bytes(values)); }
  std::uint64_t value() const { return sum_.value(); }

 private:
  Checksum64 sum_;
};

std::uint64_t hash_of(const TokenizerInfo& info, const TokenizerTables& tables, bool bytes) {
  Hash hash(info.end_of_text);
  hash.add(info.name);
  for (const std::string& s : tables.text) hash.add(s);
  if (bytes) return hash.value();  // all that there is to say of it
  const TokenizerModel& m = tables.model;
  const std::int32_t flags[] = {
      m.byte_level, static_cast<int>(m.split), m.nfc, static_cast<int>(m.meta_spaces), static_cast<int>(m.prefix), m.ignore_merges};
  hash.add_values(std::span<const std::int32_t>(flags));
  for (const std::string& s : m.pieces) hash.add(s);
  for (const Merge& merge : m.merges) {
    const std::int32_t ids[] = {merge.left, merge.right, merge.id};
    hash.add_values(std::span<const std::int32_t>(ids));
  }
  for (const AddedToken& t : m.added) {
    const std::int32_t values[] = {t.id, t.lstrip, t.rstrip, t.normalized, t.special};
    hash.add(t.content);
    hash.add_values(std::span<const std::int32_t>(values));
  }
  return hash.value();
}

}  // namespace

Tokenizer Tokenizer::bytes() {
  static const Tokenizer all = [] {
    std::vector<std::string> pieces;
    for (int b = 0; b < kByteValues; ++b) pieces.emplace_back(1, static_cast<char>(b));
    return parse(byte_level_json(SplitRule::kNone, pieces, {}, kEndOfText), "the vocabulary of bytes");
  }();
  return all;
}

Tokenizer Tokenizer::make(TokenizerModel model, std::string json, const std::string& what, std::vector<std::int32_t> stops) {
  for (const std::string_view name : kEndNames)
    if (const AddedToken* t = stops.empty() ? added_named(model, name) : nullptr) stops.push_back(t->id);
  require(!stops.empty(), what, ": which token ends a text? Give eos_token in tokenizer_config.json beside it; the added tokens are ",
          added_names(model));
  const bool bytes = is_bytes(model);
  const auto tables = std::make_shared<TokenizerTables>(std::move(model), what);
  tables->text[static_cast<std::size_t>(stops[0])].clear();

  Tokenizer t;
  t.info_.name = bytes ? "bytes" : cat("BPE ", tables->model.byte_level ? name_of(tables->model.split) : "sentencepiece");
  t.info_.vocab_size = tables->model.vocab_size();
  t.info_.end_of_text = stops[0];
  t.info_.hash = hash_of(t.info_, *tables, bytes);
  t.stops_ = std::move(stops);
  t.tables_ = tables;
  t.json_ = std::make_shared<const std::string>(std::move(json));
  return t;
}

Tokenizer Tokenizer::parse(std::string json, const std::string& what) {
  TokenizerModel model = parse_tokenizer_json(json, what);
  return make(std::move(model), std::move(json), what, {});
}

Tokenizer Tokenizer::load(const std::string& path) {
  const fs::path file = fs::is_directory(path) ? fs::path(path) / kFile : fs::path(path);
  std::string json = read_file(file);
  TokenizerModel model = parse_tokenizer_json(json, file.string());
  std::vector<std::int32_t> stops = stops_beside(file.parent_path(), model);
  Tokenizer t = make(std::move(model), std::move(json), file.string(), std::move(stops));
  if (const fs::path config = file.parent_path() / kConfigFile; exists(config))
    t.config_ = std::make_shared<const std::string>(read_file(config));
  return t;
}

void Tokenizer::save(const std::string& folder) const {
  const fs::path to(folder);
  write_atomic(to / kFile, *json_);
  const TokenizerModel& m = tables_->model;
  Json j = config_ ? parse_json(*config_, kConfigFile) : Json();
  const bool fresh = !j.is_object();
  if (fresh) j = Json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const auto name_of_id = [&](std::int32_t id) {
    const auto found = std::find_if(m.added.begin(), m.added.end(), [&](const AddedToken& t) { return t.id == id; });
    return found == m.added.end() ? m.pieces[static_cast<std::size_t>(id)] : found->content;
  };
  j["eos_token"] = name_of_id(end_of_text());
  if (fresh) j["bos_token"] = name_of_id(m.prompt_prefix.empty() ? end_of_text() : m.prompt_prefix[0]);
  write_atomic(to / kConfigFile, pretty_json(j));
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials) const {
  encoder().encode(text, ids, specials);
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<std::int32_t> ids = tables_->model.prompt_prefix;
  encode(text, ids, Specials::kParse);
  return ids;
}

std::string_view Tokenizer::decode(std::int32_t id) const {
  require(id >= 0 && id < vocab_size(), "token ", id, ", expected an id below the vocabulary of ", vocab_size());
  return tables_->text[static_cast<std::size_t>(id)];
}

std::vector<std::int32_t> Tokenizer::token_bytes() const {
  std::vector<std::int32_t> bytes;
  for (const std::string& s : tables_->text) bytes.push_back(static_cast<std::int32_t>(s.size()));
  return bytes;
}

}  // namespace flashgpt
