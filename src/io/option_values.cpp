#include "io/option_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

// The text without a leading plus and without single underscores between digits; nothing when they stand elsewhere.
std::optional<std::string> plain_number(std::string_view text) {
  auto digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return {};
    } else if (i > 0 || text[i] != '+' || (i + 1 < text.size() && text[i + 1] == '-')) {
      out += text[i];
    }
  }
  return out;
}

template <class T> std::optional<T> parse_all(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

template <class T> struct Optional : std::false_type { using Value = T; };
template <class T> struct Optional<std::optional<T>> : std::true_type { using Value = T; };

const std::pair<std::string, std::int64_t>* word_of(const Option& option, std::string_view text) {
  for (const auto& word : option.words)
    if (word.first == text) return &word;
  return nullptr;
}

bool in_range(const Option& option, long double value) {
  return (option.below_max ? value < option.max : value <= option.max) && (option.above_min ? value > option.min : value >= option.min);
}

bool is_word_number(const Option& option, long double value) {
  return std::any_of(option.words.begin(), option.words.end(), [&](const auto& word) { return word.second == value; });
}

template <class T> std::optional<T> parse_field(const Option& option, const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return parse_bool(text);
  } else {
    // A special value need not lie in the range of the ordinary ones.
    if (const auto* word = word_of(option, text)) return static_cast<T>(word->second);
    if constexpr (std::is_same_v<T, double>) {
      const std::optional<double> value = parse_real(text);
      return value && (in_range(option, *value) || is_word_number(option, *value)) ? value : std::nullopt;
    } else {
      const std::optional<long double> value = option.size ? parse_size(text) : parse_whole(text);
      if (!value || (!in_range(option, *value) && !is_word_number(option, *value))) return {};
      if (*value < static_cast<long double>(std::numeric_limits<T>::min()) ||
          *value > static_cast<long double>(std::numeric_limits<T>::max()))
        return {};
      return static_cast<T>(*value);
    }
  }
}

template <class T> std::string field_text(const Option& option, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else {
    for (const auto& [word, number] : option.words)
      if (static_cast<T>(number) == value) return word;
    if constexpr (std::is_same_v<T, double>)
      return real_text(value);
    else
      return std::to_string(value);
  }
}

bool store_choice(const Option& option, const ChoiceField& field, const std::string& text) {
  const auto* word = word_of(option, text);
  // "yes" and "no" among other words: YAML's other spellings mean the same.
  if (const std::optional<bool> yes = parse_bool(text); !word && yes && !parse_whole(text)) word = word_of(option, *yes ? "yes" : "no");
  const std::optional<long double> number = word ? word->second : parse_whole(text);
  if (!number) return false;
  for (const auto& candidate : option.words) {
    if (candidate.second != *number) continue;
    field.set(candidate.second);
    return true;
  }
  return false;
}

bool may_be_absent(const Option& option) {
  return std::visit(
      [&](const auto& field) {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, ChoiceField>)
          return !option.absent.empty();
        else
          return Optional<std::decay_t<decltype(*field)>>::value;
      },
      option.field);
}

std::string range_text(const Option& option, std::string (*number)(double)) {
  const bool low = std::isfinite(option.min), high = std::isfinite(option.max);
  const std::string most = high ? (option.below_max ? ", below " : ", at most ") + number(option.max) : "";
  if (low && option.above_min) return " above " + number(option.min) + most;
  if (low && high && option.below_max) return " of at least " + number(option.min) + most;
  if (low && high) return " from " + number(option.min) + " to " + number(option.max);
  if (low) return " of at least " + number(option.min);
  return high ? " of at most " + number(option.max) : "";
}

std::string whole_text(double value) { return std::to_string(static_cast<std::int64_t>(value)); }

}  // namespace

std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> plain = plain_number(text);
  if (!plain) return {};
  const std::optional<double> value = parse_all<double>(*plain);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<long double> parse_whole(std::string_view text) {
  constexpr double kExact = 0x1p53;  // above it a double no longer tells neighbours apart
  const std::optional<std::string> plain = plain_number(text);
  if (!plain) return {};
  if (const auto value = parse_all<std::int64_t>(*plain)) return *value;
  if (const auto value = parse_all<std::uint64_t>(*plain)) return *value;
  const std::optional<double> value = parse_real(*plain);
  if (!value || std::abs(*value) > kExact || *value != std::floor(*value)) return {};
  return *value;
}

std::optional<long double> parse_size(std::string_view text) {
  constexpr std::string_view kUnits = "kmgt";
  std::string_view number = text;
  bool binary = false, bytes = false;
  auto ends_with = [&](char c) {
    if (number.empty() || (number.back() | 0x20) != c) return false;
    number.remove_suffix(1);
    return true;
  };
  bytes = ends_with('b');
  binary = bytes && ends_with('i');
  long double factor = 1;
  const std::size_t unit = number.empty() ? std::string_view::npos : kUnits.find(static_cast<char>(number.back() | 0x20));
  if (unit == std::string_view::npos) {
    if (bytes) return {};  // "10B": bytes, or billions?
    return parse_whole(text);
  }
  number.remove_suffix(1);
  for (std::size_t i = 0; i <= unit; ++i) factor *= binary ? 1024 : 1000;
  while (!number.empty() && number.back() == ' ') number.remove_suffix(1);
  const std::optional<double> count = parse_real(number);
  if (!count) return {};
  const long double value = std::round(static_cast<long double>(*count) * factor * 1000) / 1000;  // 1.1k is 1100, whatever 1.1 is
  if (value != std::floor(value)) return {};
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  auto is = [&](std::string_view word) {  // all small, all capital, or the first one capital
    auto matches = [&](std::size_t i, bool capital) { return text[i] == (capital ? std::toupper(word[i]) : word[i]); };
    bool small = text.size() == word.size(), capitals = small, title = small;
    for (std::size_t i = 0; small + capitals + title > 0 && i < word.size(); ++i) {
      small = small && matches(i, false);
      capitals = capitals && matches(i, true);
      title = title && matches(i, i == 0);
    }
    return small || capitals || title;
  };
  for (const char* yes : {"true", "yes", "on", "1"})
    if (is(yes)) return true;
  for (const char* no : {"false", "no", "off", "0"})
    if (is(no)) return false;
  return {};
}

std::string real_text(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : "?";
}

bool is_flag_without_value(const Option& option) {
  return std::holds_alternative<bool*>(option.field) || std::holds_alternative<std::optional<bool>*>(option.field);
}

std::string value_text(const Option& option) {
  return std::visit(
      [&](const auto& field) -> std::string {
        using F = std::decay_t<decltype(field)>;
        if constexpr (std::is_same_v<F, ChoiceField>) {
          const std::optional<int> number = field.get();
          for (const auto& [word, n] : option.words)
            if (number == n) return word;
          return number ? std::to_string(*number) : option.absent;
        } else if constexpr (Optional<std::remove_pointer_t<F>>::value) {
          return *field ? field_text(option, **field) : option.absent;
        } else {
          return field_text(option, *field);
        }
      },
      option.field);
}

std::string expectation(const Option& option, const std::string& text) {
  std::string out = std::visit(
      [&](const auto& field) -> std::string {
        using F = std::decay_t<decltype(field)>;
        if constexpr (std::is_same_v<F, ChoiceField>) {
          return "";
        } else {
          using T = typename Optional<std::remove_pointer_t<F>>::Value;
          if constexpr (std::is_same_v<T, std::string>) return "a text";
          if constexpr (std::is_same_v<T, bool>) return "true or false";
          if constexpr (std::is_same_v<T, double>) return "a number" + range_text(option, real_text);
          if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
            const std::size_t digits = text.find_first_of("123456789");
            const bool huge = digits != std::string::npos && digits <= 1 && text.size() - digits >= 19 &&
                              text.find_first_not_of("0123456789_", digits) == std::string::npos;
            if (huge && !std::isfinite(option.max)) {  // the limit is the type's
              const T least = std::isfinite(option.min) ? static_cast<T>(option.min) : std::numeric_limits<T>::min();
              return cat("a whole number from ", least, " to ", std::numeric_limits<T>::max());
            }
            return (option.size ? "a size (like 4096, 16M or 2GiB)" : "a whole number") + range_text(option, whole_text);
          }
        }
      },
      option.field);
  for (const auto& word : option.words) out += (out.empty() ? "" : ", ") + word.first;
  if (!option.absent.empty()) out += (out.empty() ? "" : ", ") + option.absent;
  return out;
}

bool store_value(const Option& option, const std::string& text, bool null) {
  const bool absent = null || (!option.absent.empty() && text == option.absent);
  if (absent && !may_be_absent(option)) return false;
  return std::visit(
      [&](const auto& field) -> bool {
        using F = std::decay_t<decltype(field)>;
        if constexpr (std::is_same_v<F, ChoiceField>) {
          if (absent) field.set(std::nullopt);
          return absent || store_choice(option, field, text);
        } else {
          using V = std::remove_pointer_t<F>;
          if (absent) {
            if constexpr (Optional<V>::value) *field = std::nullopt;
            return true;
          }
          auto value = parse_field<typename Optional<V>::Value>(option, text);
          if (value) *field = std::move(*value);
          return value.has_value();
        }
      },
      option.field);
}

}  // namespace flashgpt
