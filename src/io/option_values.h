// Values as people write them: text to number and back. Nothing: the text is no such value.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "io/options.h"

namespace flashgpt {

// 32, -1, 1_000, 1e5 (when it is whole). long double holds all 64-bit integers, signed and unsigned.
std::optional<long double> parse_whole(std::string_view text);
std::optional<double> parse_real(std::string_view text);       // 6e-5, .5, 1_000.5; finite
std::optional<long double> parse_size(std::string_view text);  // 512, 16M, 1.5k, 2GiB
std::optional<bool> parse_bool(std::string_view text);         // true false yes no on off 1 0, also True, TRUE, ... as in YAML 1.1
std::string real_text(double value);                           // the shortest text that reads back as the same number

std::string value_text(const Option& option);  // "" when absent without a word for it
// "a whole number from 1 to 64", for messages; text: of a value too large for any whole number, so that the limit is told
std::string expectation(const Option& option, const std::string& text = "");
std::string default_flag(const std::string& key);  // "--batch-size" of train_params.batch_size
bool is_flag_without_value(const Option& option);  // yes or no
// Reads the text into the field; false when it does not fit expectation(). Absent fields: null, or the word.
bool store_value(const Option& option, const std::string& text, bool null);

}  // namespace flashgpt
