// The text of --help: a title a section, then one line or more an option, wrapped to the width.
#include <algorithm>
#include <sstream>

#include "io/option_values.h"
#include "io/options.h"

namespace flashgpt {
namespace {

constexpr std::size_t kFlagColumn = 32;

std::string placeholder(const Option& option) {
  if (!option.value_name.empty()) return option.value_name;
  std::string words;
  for (const auto& [word, number] : option.words) words += (words.empty() ? "" : "|") + word;
  if (!option.absent.empty()) words += (words.empty() ? "" : "|") + option.absent;
  std::string kind = std::visit(
      [&](const auto& field) -> std::string {
        using F = std::decay_t<decltype(field)>;
        if constexpr (std::is_same_v<F, ChoiceField>) return "";
        if constexpr (std::is_same_v<F, double*> || std::is_same_v<F, std::optional<double>*>) return "X";
        if constexpr (std::is_same_v<F, std::string*> || std::is_same_v<F, std::optional<std::string>*>) return "TEXT";
        return option.size ? "SIZE" : "N";
      },
      option.field);
  if (!kind.empty() && !words.empty()) kind += "|";
  return kind + words;
}

// What 0 means to a number that has a word for it.
std::string zero_text(const Option& option) {
  if (std::holds_alternative<ChoiceField>(option.field)) return "";
  for (const auto& [word, number] : option.words)
    if (number == 0) return " (0: " + word + ")";
  return "";
}

// The key of a flag that is named otherwise.
std::string key_text(const Option& option) {
  const bool usual = option.flag == default_flag(option.key);
  return usual || !option.in_file || option.key.find('.') == std::string::npos ? "" : " (" + option.key + ")";
}

std::string usage(const OptionText& option) {
  if (option.value.empty()) return "--[no-]" + option.flag.substr(2);
  return option.value_may_be_left_out ? option.flag + "[=" + option.value + "]" : option.flag + " " + option.value;
}

// "  left    text", the text wrapped beside it, or below it when left is long.
std::string entry(const std::string& left, const std::string& text, std::size_t width) {
  std::string out = "  " + left;
  if (out.size() + 2 > kFlagColumn)
    out += "\n" + std::string(kFlagColumn, ' ');
  else
    out.resize(kFlagColumn, ' ');
  std::size_t column = kFlagColumn;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > kFlagColumn && column + 1 + word.size() > width) {
      out += "\n" + std::string(kFlagColumn, ' ');
      column = kFlagColumn;
    }
    if (column > kFlagColumn) out += " ", ++column;
    out += word;
    column += word.size();
  }
  return out + "\n";
}

}  // namespace

std::vector<OptionText> OptionTable::texts() const {
  std::vector<OptionText> out;
  std::vector<bool> done(options_.size(), false);
  auto section_of = [](const Option& option) {
    return option.key.substr(0, option.key.find('.') == std::string::npos ? 0 : option.key.find('.'));
  };
  for (std::size_t first = 0; first < options_.size(); ++first) {
    if (done[first]) continue;
    const std::string section = section_of(options_[first]);
    const auto title = titles_.find(section);
    const std::string name = title != titles_.end() ? title->second : section.empty() ? "Options" : section;
    for (std::size_t i = first; i < options_.size(); ++i) {
      const Option& o = options_[i];
      if (section_of(o) != section) continue;
      done[i] = true;
      const bool yes_or_no = is_flag_without_value(o);
      OptionText text{
          .section = name + (section.empty() || name == section ? "" : " (" + section + ")"),
          .key = o.in_file ? o.key : "",
          .flag = o.flag,
          .value = yes_or_no ? "" : placeholder(o),
          .value_may_be_left_out = !o.bare.empty(),
          .is_text = std::holds_alternative<std::string*>(o.field) || std::holds_alternative<std::optional<std::string>*>(o.field),
          .help = o.help + zero_text(o) + key_text(o),
          .by_default = defaults_[i]};
      for (const auto& [word, number] : o.words) text.words.push_back(word);
      if (!o.absent.empty()) text.words.push_back(o.absent);
      out.push_back(std::move(text));
    }
  }
  return out;
}

std::string OptionTable::help(std::size_t width) const {
  std::string out, section;
  for (const OptionText& o : texts()) {
    if (o.section != section) out += (out.empty() ? "" : "\n") + o.section + ":\n";
    section = o.section;
    out += entry(usage(o), o.help + (o.by_default.empty() ? "" : " [" + o.by_default + "]"), width);
  }
  out += "\nSettings:\n";
  out += entry("--config FILE", "read settings from a YAML file; flags and overrides win over it", width);
  out +=
      entry("section.key=value",
            "the same as a flag: the section stands in brackets above, the key is the flag's name with _ for -, unless another one is told",
            width);
  out += entry("--help", "this text", width);
  return out;
}

}  // namespace flashgpt
