// YAML files of options. Maps are sections, scalars are values; a dotted key is the same as nested maps. yaml-cpp is used here only,
// by its events: its LoadAll() never returns on a file that starts with a comma, and its Load() ignores what follows a first document.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

#include "flashgpt/error.h"
#include "io/file.h"
#include "io/option_values.h"
#include "io/options.h"

namespace flashgpt {
namespace {

std::string place(const std::string& file, const YAML::Mark& mark) { return mark.is_null() ? file : cat(file, ":", mark.line + 1); }

struct Value {
  enum Kind { kNull, kScalar, kList, kMap } kind = kNull;
  std::string text;
};

struct Pair {
  std::string key, where;
  Value value;
};

bool is_section(const std::string& key, const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(), [inside = key + "."](const std::string& k) { return k.starts_with(inside); });
}

// Collects "section.key" and value. Maps that are no known section, and lists, are noted and passed over.
class PairReader : public YAML::EventHandler {
 public:
  PairReader(std::string file, std::vector<std::string> keys) : file_(std::move(file)), keys_(std::move(keys)) {}
  std::vector<Pair> pairs;

  void OnDocumentStart(const YAML::Mark& mark) override {
    require(!std::exchange(started_, true), place(file_, mark), ": a second YAML document, expected one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor, {}); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& text) override {
    leaf(mark, anchor, {Value::kScalar, text});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (skipped_ > 0) return;
    require(found != anchors_.end(), place(file_, mark), ": an alias of a map or a list, expected one of a single value");
    leaf(mark, YAML::NullAnchor, found->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    if (skipped_++ == 0) value(mark, {Value::kList, ""});
  }
  void OnSequenceEnd() override { --skipped_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    if (skipped_ > 0) {
      ++skipped_;
    } else if (prefixes_.empty()) {
      prefixes_.push_back("");
    } else if (key_ && is_section(*key_, keys_)) {
      prefixes_.push_back(*key_ + ".");
      key_.reset();
    } else {
      value(mark, {Value::kMap, ""});
      ++skipped_;
    }
  }
  void OnMapEnd() override {
    if (skipped_ > 0)
      --skipped_;
    else
      prefixes_.pop_back();
  }

 private:
  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor, const Value& v) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = v;
    if (skipped_ > 0 || (prefixes_.empty() && v.kind == Value::kNull)) return;
    if (prefixes_.empty() || key_ || v.kind == Value::kNull) return value(mark, v);
    key_ = prefixes_.back() + v.text;
    key_where_ = place(file_, mark);
  }
  void value(const YAML::Mark& mark, const Value& v) {
    require(!prefixes_.empty(), place(file_, mark), ": expected sections and keys, as in \"train_params:\"");
    require(key_.has_value(), place(file_, mark), ": a key that is no word");
    // "train_params:" with nothing below it says nothing.
    if (v.kind != Value::kNull || !is_section(*key_, keys_)) pairs.push_back({*key_, key_where_, v});
    key_.reset();
  }

  std::string file_;
  std::vector<std::string> keys_;
  std::map<YAML::anchor_t, Value> anchors_;
  std::vector<std::string> prefixes_;  // of the maps that are open
  std::optional<std::string> key_;     // whose value comes next
  std::string key_where_;
  int skipped_ = 0;  // lists and maps open that are passed over
  bool started_ = false;
};

bool is_plain(const std::string& text) {
  static const std::string_view kSpecial[] = {"null", "Null", "NULL"};
  if (text.empty() || std::find(std::begin(kSpecial), std::end(kSpecial), text) != std::end(kSpecial)) return false;
  return (text.size() > 1 || text[0] != '-') && text[0] != '.' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-' || c == '+';
         });
}

std::string quoted(const std::string& text) {
  if (is_plain(text)) return text;
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

}  // namespace

void OptionTable::load(const std::filesystem::path& path) { load_text(read_file(path), path.string()); }

void OptionTable::load_text(const std::string& text, const std::string& file) {
  const std::vector<std::string> known = keys();
  PairReader reader(file, known);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(reader)) parser.HandleNextDocument(reader);  // a second one is an error
  } catch (const YAML::Exception& error) {
    fail(place(file, error.mark), ": ", error.msg);
  }
  std::map<std::string, std::string> seen;
  std::vector<Setting> settings;
  for (const auto& [key, where, value] : reader.pairs) {
    require(!is_section(key, known), where, ": ", key, " is a section, expected its keys below it");
    const std::size_t row = row_or_fail(key, where);
    const auto [first, is_new] = seen.emplace(key, where);
    require(is_new, where, ": ", key, " = \"", value.text, "\" is given twice, first in ", first->second, ", expected once");
    require(value.kind <= Value::kScalar, where, ": ", key, " = ", value.kind == Value::kList ? "a list" : "a map", ", expected ",
            expectation(options_[row]));
    settings.push_back({row, value.text, where, value.kind == Value::kNull, /*from_file=*/true});
  }
  for (const Setting& setting : settings) set(setting);
}

std::string OptionTable::to_yaml() const {
  std::string out;
  std::vector<bool> done(options_.size(), false);
  // Keys of one section stand together, in the order of the section's first key; keys of deeper levels are written dotted.
  for (std::size_t first = 0; first < options_.size(); ++first) {
    const std::string& key = options_[first].key;
    const std::size_t dot = key.find('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot + 1);
    bool heading = false;
    for (std::size_t i = first; i < options_.size(); ++i) {
      const Option& option = options_[i];
      if (done[i] || (section.empty() ? i != first : !option.key.starts_with(section))) continue;
      done[i] = true;
      const std::string value = value_text(option);
      const bool text =
          std::holds_alternative<std::string*>(option.field) || std::holds_alternative<std::optional<std::string>*>(option.field);
      const auto* optional_text = std::get_if<std::optional<std::string>*>(&option.field);
      const bool absent = value.empty() && (!text || option.path || (optional_text && !**optional_text));
      if (!option.in_file || absent) continue;
      if (!section.empty() && !heading) out += section.substr(0, section.size() - 1) + ":\n";
      heading = true;
      out += (section.empty() ? "" : "  ") + option.key.substr(section.size()) + ": " + quoted(value) + "\n";
    }
  }
  return out;
}

}  // namespace flashgpt
