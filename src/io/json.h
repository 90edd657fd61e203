// JSON in and out, over nlohmann::json (declared here, defined in its heavy header: include <nlohmann/json.hpp> in a .cpp that looks into
// a value).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace flashgpt {

using Json = nlohmann::json;                 // keys sorted, found fast
using OrderedJson = nlohmann::ordered_json;  // keys as inserted, found by search: for small objects that people read

// `what` names the text in an Error(kInvalid), as in "config.json: line 3, column 7: ...". A key given twice in an object is an error,
// and so is nesting deeper than 200.
Json parse_json(std::string_view text, std::string_view what);

// Indented by two, ends with a newline. Infinite and NaN become null (JSON has none); bytes that are no UTF-8 become U+FFFD.
std::string pretty_json(const Json& value);
std::string pretty_json(const OrderedJson& value);

// In one line, without the newline.
std::string compact_json(const Json& value);
std::string compact_json(const OrderedJson& value);

}  // namespace flashgpt
