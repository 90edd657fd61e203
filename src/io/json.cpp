// nlohmann keeps the last of two equal keys and says nothing; a header or a config with two is damaged or mistaken. So its events build the
// value here, where an insertion tells whether the key is new.
#include "io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

constexpr std::size_t kDeepest = 200;

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

class Builder : public Json::json_sax_t {
 public:
  Builder(std::string_view text, std::string_view what) : text_(text), what_(what) {}
  Json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(std::int64_t v) override { return add(v); }
  bool number_unsigned(std::uint64_t v) override { return add(v); }
  bool number_float(double v, const std::string&) override { return add(v); }
  bool string(std::string& v) override { return add(std::move(v)); }
  bool binary(Json::binary_t& v) override { return add(std::move(v)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name));
    require(is_new, what_, ": key \"", place->first, "\" is given twice in one object");
    member_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) override {
    const Position at = position_of(text_, byte > 0 ? byte - 1 : 0);
    fail(what_, ": line ", at.line, ", column ", at.column, ": ", reason_of(error.what()));
  }

 private:
  Json* place(Json value) {
    Json* to = &root;
    if (!open_.empty()) to = open_.back()->is_array() ? &open_.back()->get_ref<Json::array_t&>().emplace_back() : member_;
    *to = std::move(value);
    return to;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    require(open_.size() < kDeepest, what_, ": nested deeper than ", kDeepest, " levels");
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_, what_;
  std::vector<Json*> open_;  // objects and arrays that are not closed; each stays where it is while the next ones are filled
  Json* member_ = nullptr;   // of the object open_.back(), whose value comes next
};

template <class J> std::string dump(const J& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, J::error_handler_t::replace);
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  Builder builder(text, what);
  Json::sax_parse(text.begin(), text.end(), &builder);  // false never comes: each fault throws
  return std::move(builder.root);
}

std::string pretty_json(const Json& value) { return dump(value, 2) + "\n"; }
std::string pretty_json(const OrderedJson& value) { return dump(value, 2) + "\n"; }
std::string compact_json(const Json& value) { return dump(value, -1); }
std::string compact_json(const OrderedJson& value) { return dump(value, -1); }

}  // namespace flashgpt
