// nlohmann keeps the last of two equal keys and says nothing; a header or a config with two is damaged or mistaken, so a key event checks.
#include "io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

constexpr int kDeepest = 200;

struct Position {
  std::size_t line = 1, column = 1;
};

Position position_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t newline = before.rfind('\n');
  return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
          newline == std::string_view::npos ? before.size() + 1 : before.size() - newline};
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..." -> "syntax error while ..."
std::string reason_of(const char* what) {
  const std::string text = what;
  const std::size_t bracket = text.find("] "), at = text.find(": ", bracket == std::string::npos ? 0 : bracket);
  return at == std::string::npos ? text : text.substr(at + 2);
}

template <class J> std::string dump(const J& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, J::error_handler_t::replace);
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  using Event = Json::parse_event_t;
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const Json::parser_callback_t check = [&](int depth, Event event, Json& value) {
    if (event == Event::object_start || event == Event::array_start)
      require(depth < kDeepest, what, ": nested deeper than ", kDeepest, " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const std::string& key = value.get_ref<const std::string&>();
      require(keys.back().insert(key).second, what, ": key \"", key, "\" is given twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    const Position at = position_of(text, error.byte > 0 ? error.byte - 1 : 0);
    fail(what, ": line ", at.line, ", column ", at.column, ": ", reason_of(error.what()));
  } catch (const Json::exception& error) {  // a number out of range
    fail(what, ": ", reason_of(error.what()));
  }
}

std::string pretty_json(const Json& value) { return dump(value, 2) + "\n"; }
std::string pretty_json(const OrderedJson& value) { return dump(value, 2) + "\n"; }
std::string compact_json(const Json& value) { return dump(value, -1); }
std::string compact_json(const OrderedJson& value) { return dump(value, -1); }

}  // namespace flashgpt
