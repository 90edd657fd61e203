#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "data/tokenizer/byte_names.h"
#include "flashgpt/error.h"
#include "io/json.h"

namespace flashgpt {
namespace {

// Ids are dense: one far beyond the number of pieces is a damaged file, and must not decide how much memory is taken.
constexpr std::int64_t kIdsAPiece = 16, kIdsAlways = 1 << 16;
constexpr std::size_t kShown = 200;  // bytes of an unknown part in a message

class Reader {
 public:
  explicit Reader(const std::string& what) : what_(what) {}

  TokenizerModel model(const Json& j) {
    expect(j.is_object(), "the file", j, "an object");
    pre_tokenizer(at(j, "pre_tokenizer"));
    normalizer(at(j, "normalizer"));
    vocabulary(at(j, "model"));
    added_tokens(at(j, "added_tokens"));
    post_processor(at(j, "post_processor"));
    return std::move(m_);
  }

 private:
  // Absent is null.
  static const Json& at(const Json& j, const char* key) {
    static const Json null;
    if (!j.is_object()) return null;
    const auto found = j.find(key);
    return found == j.end() ? null : *found;
  }
  template <class... Expected> void expect(bool ok, std::string_view part, const Json& value, const Expected&... expected) const {
    if (ok) return;
    std::string shown = compact_json(value);
    if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
    fail(what_, ": ", part, " is ", shown, ", expected ", expected...);
  }
  std::string text(const Json& j, const char* key, std::string_view part) const {
    expect(at(j, key).is_string(), cat(part, ".", key), at(j, key), "a string");
    return at(j, key).get<std::string>();
  }
  bool flag(const Json& j, const char* key, bool otherwise, std::string_view part) const {
    const Json& v = at(j, key);
    expect(v.is_null() || v.is_boolean(), cat(part, ".", key), v, "true or false");
    return v.is_null() ? otherwise : v.get<bool>();
  }
  std::int32_t id(const Json& v, std::string_view part) const {
    expect(v.is_number_integer() && v >= 0 && v < max_ids_, part, v, "an id below ", max_ids_);
    return v.get<std::int32_t>();
  }
  // The parts of a Sequence, or the one part; nothing for null.
  std::vector<const Json*> sequence(const Json& j, const char* list, std::string_view part) const {
    if (j.is_null()) return {};
    if (text(j, "type", part) != "Sequence") return {&j};
    expect(at(j, list).is_array(), cat(part, ".", list), at(j, list), "a list");
    std::vector<const Json*> parts;
    for (const Json& p : at(j, list)) parts.push_back(&p);
    return parts;
  }

  void pre_tokenizer(const Json& j) {
    const char* const part = "pre_tokenizer";
    m_.byte_level = false;
    for (const Json* p : sequence(j, "pretokenizers", part)) {
      const std::string type = text(*p, "type", part);
      expect(!m_.byte_level, part, j, "nothing after ByteLevel");
      if (type == "ByteLevel") {
        expect(!flag(*p, "add_prefix_space", true, part), part, *p, "add_prefix_space = false");
        m_.byte_level = true;
        if (flag(*p, "use_regex", true, part)) {
          expect(m_.split == SplitRule::kNone, part, j, "one rule for words, not a Split and ByteLevel's own");
          m_.split = SplitRule::kGpt2;
        }
      } else if (type == "Split") {
        expect(m_.split == SplitRule::kNone, part, j, "one Split");
        m_.split = split(*p);
      } else if (type == "Metaspace") {
        metaspace(*p);
      } else {
        expect(false, part, *p, "ByteLevel, Split, Metaspace or a Sequence of them");
      }
    }
    expect(m_.byte_level || m_.split == SplitRule::kNone, part, j, "ByteLevel after Split");
    expect(!m_.byte_level || m_.meta_spaces == MetaSpaces::kNone, part, j, "either ByteLevel or Metaspace");
  }
  SplitRule split(const Json& j) const {
    const Json& regex = at(at(j, "pattern"), "Regex");
    expect(text(j, "behavior", "pre_tokenizer") == "Isolated" && !flag(j, "invert", false, "pre_tokenizer"), "pre_tokenizer", j,
           "Split with behavior = Isolated and invert = false");
    std::string known;
    for (const SplitRule rule : kRegexRules) {
      if (regex.is_string() && regex.get<std::string>() == regex_of(rule)) return rule;
      known += cat(known.empty() ? "" : ", ", name_of(rule));
    }
    expect(false, "pre_tokenizer.pattern", at(j, "pattern"), "the regular expression of one of: ", known);
    return SplitRule::kNone;
  }
  void metaspace(const Json& j) {
    const char* const part = "pre_tokenizer";
    expect(m_.meta_spaces == MetaSpaces::kNone, part, j, "one Metaspace");
    expect(text(j, "replacement", part) == kMetaSpace, part, j, "the replacement ", kMetaSpace);
    expect(!flag(j, "split", true, part), part, j, "Metaspace with split = false");
    m_.meta_spaces = MetaSpaces::kPreTokenizer;
    const Json& scheme = at(j, "prepend_scheme");
    if (scheme.is_null())
      m_.prefix = flag(j, "add_prefix_space", true, part) ? Prefix::kEveryMissing : Prefix::kNever;
    else if (scheme == "always")
      m_.prefix = Prefix::kEveryMissing;
    else if (scheme == "first")
      m_.prefix = Prefix::kFirstMissing;
    else
      expect(scheme == "never", part, j, "prepend_scheme = always, first or never");
  }

  void normalizer(const Json& j) {
    const char* const part = "normalizer";
    for (const Json* p : sequence(j, "normalizers", part)) {
      const std::string type = text(*p, "type", part);
      if (type == "NFC") {
        expect(m_.byte_level, part, j, "NFC before ByteLevel only");
        m_.nfc = true;
      } else if (type == "Prepend" || type == "Replace") {
        expect(!m_.byte_level && m_.meta_spaces != MetaSpaces::kPreTokenizer, part, j, "Prepend and Replace without a pre-tokenizer");
        if (type == "Prepend") {
          expect(text(*p, "prepend", part) == kMetaSpace && m_.prefix == Prefix::kNever, part, j, "to prepend one ", kMetaSpace);
          m_.prefix = Prefix::kEvery;
        } else {
          const Json& pattern = at(at(*p, "pattern"), "String");
          expect(pattern == " " && text(*p, "content", part) == kMetaSpace, part, *p, "to replace \" \" by ", kMetaSpace);
          m_.meta_spaces = MetaSpaces::kNormalizer;
        }
      } else {
        expect(false, part, *p, "NFC, Prepend, Replace or a Sequence of them");
      }
    }
    expect(m_.byte_level || m_.meta_spaces != MetaSpaces::kNone, part, j, "one that writes a space as ", kMetaSpace,
           ", as there is no pre-tokenizer of the kinds ByteLevel and Metaspace");
  }

  void vocabulary(const Json& j) {
    expect(j.is_object(), "model", j, "an object");
    if (!at(j, "type").is_null()) expect(at(j, "type") == "BPE", "model.type", at(j, "type"), "BPE");
    expect(at(j, "dropout").is_null() || at(j, "dropout") == 0, "model.dropout", at(j, "dropout"), "null");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& word = at(j, key);
      expect(word.is_null() || (word.is_string() && word.get_ref<const std::string&>().empty()), cat("model.", key), word, "null");
    }
    m_.ignore_merges = flag(j, "ignore_merges", false, "model");
    expect(m_.byte_level || !m_.ignore_merges, "model.ignore_merges", at(j, "ignore_merges"), "false with a vocabulary of characters");
    expect(m_.byte_level || flag(j, "byte_fallback", false, "model"), "model.byte_fallback", at(j, "byte_fallback"),
           "true, so that any text can be encoded");

    const Json& vocab = at(j, "vocab");
    expect(vocab.is_object() && !vocab.empty(), "model.vocab", vocab, "an object of pieces and ids");
    max_ids_ = kIdsAlways + kIdsAPiece * static_cast<std::int64_t>(vocab.size());
    std::unordered_map<std::string_view, std::int32_t> ids;
    ids.reserve(vocab.size());
    for (auto it = vocab.begin(); it != vocab.end(); ++it) {
      expect(!it.key().empty(), "a piece of model.vocab", it.key(), "some text");
      const std::int32_t i = id(it.value(), cat("model.vocab of ", it.key()));
      if (m_.pieces.size() <= static_cast<std::size_t>(i)) m_.pieces.resize(static_cast<std::size_t>(i) + 1);
      std::string& piece = m_.pieces[static_cast<std::size_t>(i)];
      require(piece.empty(), what_, ": id ", i, " stands for ", piece, " and for ", it.key(), ", expected one piece");
      piece = it.key();
      ids.emplace(it.key(), i);
    }
    const Json& merges = at(j, "merges");
    expect(merges.is_array(), "model.merges", merges, "a list");
    m_.merges.reserve(merges.size());
    for (const Json& pair : merges) {
      const auto [left, right] = pair_of(pair);
      const auto l = ids.find(left), r = ids.find(right), both = ids.find(left + right);
      expect(l != ids.end() && r != ids.end() && both != ids.end(), "a merge", pair, "two pieces of the vocabulary that make a third");
      m_.merges.push_back({.left = l->second, .right = r->second, .id = both->second});
    }
  }
  // "a b", or ["a", "b"] in newer files.
  std::pair<std::string, std::string> pair_of(const Json& j) const {
    if (j.is_array() && j.size() == 2 && j[0].is_string() && j[1].is_string()) return {j[0].get<std::string>(), j[1].get<std::string>()};
    expect(j.is_string(), "a merge", j, "two pieces");
    const auto merge = j.get<std::string>();
    const std::size_t space = merge.find(' ');
    expect(space != merge.npos && merge.find(' ', space + 1) == merge.npos, "a merge", j, "two pieces with a space between them");
    return {merge.substr(0, space), merge.substr(space + 1)};
  }

  void added_tokens(const Json& j) {
    if (j.is_null()) return;
    const char* const part = "added_tokens";
    expect(j.is_array(), part, j, "a list");
    std::unordered_map<std::int32_t, std::string> seen;
    for (const Json& t : j) {
      AddedToken token{.id = id(at(t, "id"), "the id of an added token"),
                       .content = text(t, "content", part),
                       .lstrip = flag(t, "lstrip", false, part),
                       .rstrip = flag(t, "rstrip", false, part),
                       .normalized = flag(t, "normalized", true, part),
                       .special = flag(t, "special", false, part)};
      expect(!token.content.empty(), part, t, "some content");
      expect(!flag(t, "single_word", false, part), part, t, "single_word = false");
      const auto [place, fresh] = seen.emplace(token.id, token.content);
      require(fresh, what_, ": id ", token.id, " stands for ", place->second, " and for ", token.content, ", expected one added token");
      const auto i = static_cast<std::size_t>(token.id);
      require(i >= m_.pieces.size() || m_.pieces[i].empty() || m_.pieces[i] == token.content, what_, ": id ", token.id, " stands for ",
              i < m_.pieces.size() ? m_.pieces[i] : "", " in the vocabulary and for ", token.content, " in the added tokens");
      m_.added.push_back(std::move(token));
    }
  }

  void post_processor(const Json& j) {
    const char* const part = "post_processor";
    for (const Json* p : sequence(j, "processors", part)) {
      const std::string type = text(*p, "type", part);
      if (type == "ByteLevel") continue;  // changes offsets only
      expect(type == "TemplateProcessing", part, *p, "ByteLevel, TemplateProcessing or a Sequence of them");
      expect(m_.prompt_prefix.empty(), part, j, "one TemplateProcessing");
      expect(at(*p, "single").is_array(), "post_processor.single", at(*p, "single"), "a list");
      for (const Json& step : at(*p, "single")) {
        if (!at(step, "Sequence").is_null()) break;
        const std::string name = text(at(step, "SpecialToken"), "id", part);
        const Json& ids = at(at(at(*p, "special_tokens"), name.c_str()), "ids");
        expect(ids.is_array(), cat("post_processor.special_tokens of ", name), ids, "a list of ids");
        for (const Json& i : ids) {
          m_.prompt_prefix.push_back(id(i, "post_processor.special_tokens.ids"));
          expect(m_.prompt_prefix.back() < m_.vocab_size(), "post_processor.special_tokens.ids", i, "an id of the vocabulary");
        }
      }
    }
  }

  const std::string& what_;
  TokenizerModel m_;
  std::int64_t max_ids_ = kIdsAlways;
};

OrderedJson byte_level(bool use_regex) {
  return OrderedJson{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

OrderedJson pre_tokenizer(SplitRule rule) {
  if (rule == SplitRule::kNone || rule == SplitRule::kGpt2) return byte_level(rule == SplitRule::kGpt2);
  OrderedJson split;
  split["type"] = "Split";
  split["pattern"]["Regex"] = std::string(regex_of(rule));
  split["behavior"] = "Isolated";
  split["invert"] = false;
  OrderedJson j;
  j["type"] = "Sequence";
  j["pretokenizers"] = OrderedJson::array({split, byte_level(false)});
  return j;
}

}  // namespace

TokenizerModel parse_tokenizer_json(std::string_view text, const std::string& what) { return Reader(what).model(parse_json(text, what)); }

std::string byte_level_json(SplitRule split, const std::vector<std::string>& pieces,
                            const std::vector<std::pair<std::int32_t, std::int32_t>>& merges, std::string_view end_of_text) {
  // An object of this kind looks for each new key among all it has, which is too slow here; a list of pairs becomes one at once.
  std::vector<std::string> names;
  for (const std::string& piece : pieces) names.push_back(names_of_bytes(piece));
  OrderedJson vocab = OrderedJson::object();
  auto& members = static_cast<std::vector<std::pair<const std::string, OrderedJson>>&>(vocab.get_ref<OrderedJson::object_t&>());
  for (std::size_t id = 0; id < names.size(); ++id) members.emplace_back(names[id], id);
  OrderedJson list = OrderedJson::array();
  for (const auto& [left, right] : merges)
    list.push_back(names[static_cast<std::size_t>(left)] + " " + names[static_cast<std::size_t>(right)]);

  OrderedJson j;
  j["version"] = "1.0";
  j["truncation"] = nullptr;
  j["padding"] = nullptr;
  j["added_tokens"] = OrderedJson::array({OrderedJson{{"id", pieces.size()},
                                                      {"content", std::string(end_of_text)},
                                                      {"single_word", false},
                                                      {"lstrip", false},
                                                      {"rstrip", false},
                                                      {"normalized", false},
                                                      {"special", true}}});
  j["normalizer"] = nullptr;
  j["pre_tokenizer"] = pre_tokenizer(split);
  j["post_processor"] = nullptr;
  j["decoder"] = byte_level(true);  // it does not look at use_regex; true is what the library writes there
  j["model"] = OrderedJson{{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"ignore_merges", false}};
  j["model"]["vocab"] = std::move(vocab);
  j["model"]["merges"] = std::move(list);
  return pretty_json(j);
}

}  // namespace flashgpt
