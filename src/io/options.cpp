#include "io/options.h"

#include <algorithm>

#include "flashgpt/error.h"
#include "io/option_values.h"

namespace flashgpt {
namespace {

constexpr const char *kConfigFlag = "--config", *kHelpFlag = "--help", *kNoPrefix = "--no-";

bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

bool is_override(const std::string& arg) {
  const std::size_t equals = arg.find('=');
  return equals != std::string::npos && is_key(std::string_view(arg).substr(0, equals)) && arg.front() != '-';
}

template <class... Parts> [[noreturn]] void fail_usage(const Parts&... parts) { throw Error(ErrorCode::kUsage, cat(parts...)); }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string default_flag(const std::string& key) {
  std::string name = key.substr(key.rfind('.') + 1);  // npos + 1 is 0: the whole key
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 200;  // a pasted file is no misspelt name
  std::string best;
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t edits = edit_distance(name.substr(0, kLongest), candidate);
    if (edits < fewest) best = candidate;
    fewest = std::min(fewest, edits);
  }
  return best;
}

std::string similar(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string best = nearest(name, candidates);
  auto bare = [](std::string_view text) { return text.substr(std::min(text.find_first_not_of('-'), text.size())); };
  const std::size_t shorter = std::min(bare(name).size(), bare(best).size());
  return edit_distance(name.substr(0, 2 * best.size()), best) <= 1 + shorter / 3 ? best : "";
}

void limit_positionals(const Arguments& arguments, const std::string& command, std::size_t most) {
  if (arguments.positionals.size() > most)
    fail_usage(command, ": unexpected argument '", arguments.positionals[most], "'; flashgpt ", command, " --help says what it takes");
}

OptionTable::OptionTable() = default;

void OptionTable::add(Option option) {
  if (option.flag.empty()) option.flag = default_flag(option.key);
  require(is_key(option.key), "option key \"", option.key, "\"");
  require(by_key_.emplace(option.key, options_.size()).second, "option ", option.key, " is in the table twice");
  require(option.flag != kConfigFlag && option.flag != kHelpFlag && by_flag_.emplace(option.flag, options_.size()).second, "flag ",
          option.flag, " of option ", option.key, " is taken");
  require(!std::holds_alternative<ChoiceField>(option.field) || !option.words.empty(), "option ", option.key, " is a choice without words");
  defaults_.push_back(value_text(option));
  given_.emplace_back();
  options_.push_back(std::move(option));
}

void OptionTable::title(const std::string& section, const std::string& text) { titles_[section] = text; }

std::vector<std::string> OptionTable::keys() const {
  std::vector<std::string> out;
  for (const Option& option : options_) out.push_back(option.key);
  return out;
}

std::size_t OptionTable::row(std::string_view key) const {
  const auto found = by_key_.find(key);
  require(found != by_key_.end(), "no option ", key, " in the table");
  return found->second;
}

std::size_t OptionTable::row_or_fail(const std::string& key, const std::string& where) const {
  const auto found = by_key_.find(key);
  if (found != by_key_.end() && options_[found->second].in_file) return found->second;
  // A key without its section, or under another one, is nearest to the key of the same name.
  const std::string name = key.substr(key.rfind('.') + 1);
  std::vector<std::string> known, same_name;
  for (const Option& option : options_) {
    if (!option.in_file) continue;
    known.push_back(option.key);
    if (option.key.substr(option.key.rfind('.') + 1) == name) same_name.push_back(option.key);
    for (std::size_t dot = option.key.find('.'); dot != std::string::npos; dot = option.key.find('.', dot + 1))
      known.push_back(option.key.substr(0, dot));
  }
  const std::string guess = same_name.empty() ? similar(key, known) : nearest(key, same_name);
  const std::string prefix = where.empty() ? "" : where + ": ";
  const ErrorCode code = where.empty() ? ErrorCode::kUsage : ErrorCode::kInvalid;
  if (found != by_key_.end()) throw Error(code, cat(prefix, key, " is only a flag: ", options_[found->second].flag));
  for (const Option& option : options_)
    if (option.in_file && option.key.starts_with(key + "."))
      throw Error(code, cat(prefix, key, " is a section, expected one of its keys, such as ", option.key));
  throw Error(code, cat(prefix, "unknown key ", key, guess.empty() ? "" : "; the nearest known one is " + guess));
}

Arguments OptionTable::split(const std::vector<std::string>& args) const {
  Arguments out;
  auto add_positional = [&](const std::string& arg) {
    if (arg.empty()) fail_usage("argument ", out.positionals.size() + 1, " that is no flag is empty, expected a path or a text");
    out.positionals.push_back(arg);
  };
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {
      std::for_each(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end(), add_positional);
      break;
    }
    if (arg == kHelpFlag || arg == "-h") {
      out.help = true;
      continue;
    }
    if (is_override(arg)) {
      const std::size_t equals = arg.find('=');
      out.settings.push_back({row_or_fail(arg.substr(0, equals), ""), arg.substr(equals + 1), arg.substr(0, equals)});
      continue;
    }
    if (arg.size() < 2 || arg.front() != '-') {  // "-" alone is a file by custom
      add_positional(arg);
      continue;
    }
    const std::size_t equals = arg.find('=');
    const std::string flag = arg.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = arg.substr(equals + 1);
    // The next argument, unless it is a flag: a value that starts with two dashes is written --flag=VALUE.
    auto take_value = [&] {
      if (!value && i + 1 < args.size() && !args[i + 1].starts_with("--")) value = args[++i];
      if (!value) fail_usage(flag, " needs a value: ", flag, " VALUE or ", flag, "=VALUE");
      return *value;
    };
    if (flag == kConfigFlag) {
      if (take_value().empty()) fail_usage(kConfigFlag, " = \"\", expected a path");
      out.configs.push_back(*value);
      continue;
    }
    if (const auto found = by_flag_.find(flag); found != by_flag_.end()) {
      const Option& option = options_[found->second];
      if (is_flag_without_value(option)) {
        if (!value) value = "true";
      } else if (!option.bare.empty() && !value) {
        const bool another = i + 1 == args.size() || args[i + 1].starts_with("-") || is_override(args[i + 1]);
        value = another ? option.bare : args[++i];
      }
      out.settings.push_back({found->second, take_value(), flag});
      continue;
    }
    if (flag.starts_with(kNoPrefix)) {
      const auto found = by_flag_.find("--" + flag.substr(std::string_view(kNoPrefix).size()));
      if (found != by_flag_.end() && is_flag_without_value(options_[found->second])) {
        if (value) fail_usage(flag, " takes no value, got \"", *value, "\"");
        out.settings.push_back({found->second, "false", flag});
        continue;
      }
    }
    if (flag == kHelpFlag) fail_usage(flag, " takes no value, got \"", *value, "\"");
    std::vector<std::string> known{kConfigFlag, kHelpFlag};
    for (const Option& option : options_) known.push_back(option.flag);
    const std::string guess = similar(flag, known);
    fail_usage("unknown flag ", flag, guess.empty() ? "; --help lists them" : "; the nearest known one is " + guess);
  }
  return out;
}

void OptionTable::set(const Setting& setting) {
  const Option& option = options_[setting.option];
  if (option.path && !setting.from_file && setting.value.empty())
    fail_usage(setting.where, " = \"\", expected ", option.bare.empty() ? "a path" : "a word");
  if (!store_value(option, setting.value, setting.null)) {
    const std::string name = setting.from_file ? setting.where + ": " + option.key : setting.where;
    const std::string value = setting.null ? "nothing" : "\"" + setting.value + "\"";
    throw Error(setting.from_file ? ErrorCode::kInvalid : ErrorCode::kUsage,
                cat(name, " = ", value, ", expected ", expectation(option, setting.value)));
  }
  given_[setting.option] = setting;
}

void OptionTable::apply(const Arguments& arguments) {
  for (const Setting& setting : arguments.settings) set(setting);
}

void OptionTable::reapply() {
  for (const std::optional<Setting>& setting : given_)
    if (setting) set(Setting(*setting));
}

bool OptionTable::given(std::string_view key) const { return given_[row(key)].has_value(); }

std::string OptionTable::where(std::string_view key) const {
  const std::optional<Setting>& setting = given_[row(key)];
  return setting ? setting->where : "";
}

std::string OptionTable::text(std::string_view key) const { return value_text(options_[row(key)]); }

}  // namespace flashgpt
