// YAML files of options. Maps are sections, scalars are values; a dotted key is the same as nested maps. yaml-cpp is used here only.
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "flashgpt/error.h"
#include "io/file.h"
#include "io/option_values.h"
#include "io/options.h"

namespace flashgpt {
namespace {

std::string place(const std::string& file, const YAML::Mark& mark) { return mark.is_null() ? file : cat(file, ":", mark.line + 1); }

struct Pair {
  std::string key, where;
  YAML::Node value;
};

bool is_section(const std::string& key, const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(), [inside = key + "."](const std::string& k) { return k.starts_with(inside); });
}

// Goes only into sections that are known, so that neither a deep file nor an alias of itself leads far.
void flatten(const YAML::Node& map, const std::string& prefix, const std::string& file, const std::vector<std::string>& keys,
             std::vector<Pair>& out) {
  for (const auto& item : map) {
    const std::string where = place(file, item.first.Mark());
    require(item.first.IsScalar(), where, ": a key that is no word");
    const std::string key = prefix + item.first.Scalar();
    const bool section = is_section(key, keys);
    if (section && item.second.IsMap())
      flatten(item.second, key + ".", file, keys, out);
    else if (!section || !item.second.IsNull())  // "train_params:" with nothing below it says nothing
      out.push_back({key, where, item.second});
  }
}

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
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(text);
  } catch (const YAML::Exception& error) {
    fail(place(file, error.mark), ": ", error.msg);
  }
  require(documents.size() <= 1, file, ": ", documents.size(), " YAML documents, expected one");
  if (documents.empty() || documents[0].IsNull()) return;
  require(documents[0].IsMap(), place(file, documents[0].Mark()), ": expected sections and keys, as in \"train_params:\"");

  std::vector<Pair> pairs;
  const std::vector<std::string> known = keys();
  flatten(documents[0], "", file, known, pairs);
  std::map<std::string, std::string> seen;
  std::vector<Setting> settings;
  for (const Pair& pair : pairs) {
    const auto [first, is_new] = seen.emplace(pair.key, pair.where);
    require(!is_section(pair.key, known), pair.where, ": ", pair.key, " is a section, expected its keys below it");
    const std::size_t row = row_or_fail(pair.key, pair.where);
    const Option& option = options_[row];
    require(is_new, pair.where, ": ", pair.key, " = \"", pair.value.IsScalar() ? pair.value.Scalar() : "...",
            "\" is given twice, first in ", first->second, ", expected once");
    require(pair.value.IsScalar() || pair.value.IsNull(), pair.where, ": ", pair.key, " = ", pair.value.IsSequence() ? "a list" : "a map",
            ", expected ", expectation(option));
    settings.push_back({row, pair.value.IsNull() ? "" : pair.value.Scalar(), pair.where, pair.value.IsNull(), /*from_file=*/true});
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
      const bool absent = value.empty() && (!text || (optional_text && !**optional_text));
      if (!option.in_file || absent) continue;
      if (!section.empty() && !heading) out += section.substr(0, section.size() - 1) + ":\n";
      heading = true;
      out += (section.empty() ? "" : "  ") + option.key.substr(section.size()) + ": " + quoted(value) + "\n";
    }
  }
  return out;
}

}  // namespace flashgpt
