#include "io/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "io/test_folder.h"

namespace flashgpt {
namespace {

TEST(JsonText, RoundTrips) {
  const Json value = parse_json(R"({"b": [1, -2.5, 18446744073709551615], "a": {"x": null, "y": "ü\n"}})", "text");
  EXPECT_EQ(value["b"][2].get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_json(pretty_json(value), "again"), value);
  EXPECT_EQ(compact_json(value), "{\"a\":{\"x\":null,\"y\":\"ü\\n\"},\"b\":[1,-2.5,18446744073709551615]}");
  OrderedJson ordered;
  ordered["z"] = 1;
  ordered["a"] = 0.1;
  EXPECT_EQ(compact_json(ordered), "{\"z\":1,\"a\":0.1}");
  EXPECT_EQ(pretty_json(ordered), "{\n  \"z\": 1,\n  \"a\": 0.1\n}\n");
}

TEST(JsonText, ErrorsNameTheTextAndThePosition) {
  expect_error([] { parse_json("{\n  \"a\": 1,\n  \"b\" 2\n}", "config.json"); }, "config.json: line 3, column 7: syntax error");
  expect_error([] { parse_json("", "x"); }, "x: line 1, column 1: ");
  expect_error([] { parse_json("{} {}", "x"); }, "x: line 1, column 4: ");
  expect_error([] { parse_json("{\"a\": \"\xff\"}", "x"); }, "x: line 1, column ");
  expect_error([] { parse_json("1e999", "x"); }, "x: ");
}

TEST(JsonText, AKeyGivenTwiceIsAnError) {
  expect_error([] { parse_json(R"({"a": 1, "b": {"a": 2}, "a": 3})", "x"); }, "x: key \"a\" is given twice");
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 2}, {"b": {"a": {"a": 1}}}])", "x"));
}

TEST(JsonText, DeepNestingIsAnError) {
  expect_error([] { parse_json(std::string(100000, '['), "x"); }, "nested deeper");
  EXPECT_NO_THROW(parse_json(std::string(150, '[') + std::string(150, ']'), "x"));
}

TEST(JsonText, WritesWhatJsonCannotSay) {
  EXPECT_EQ(compact_json(Json{{"loss", std::numeric_limits<double>::quiet_NaN()}}), "{\"loss\":null}");
  EXPECT_EQ(compact_json(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace flashgpt
