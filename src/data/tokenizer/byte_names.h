// GPT-2's names of bytes, in which byte-level vocabularies are written: printable characters of Latin-1 are themselves, the others count on
// from U+0100, so that every byte is a visible character ("Ġ" is a space, "Ċ" a newline).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace flashgpt {

std::string name_of_byte(int byte);                                // UTF-8
std::string names_of_bytes(std::string_view bytes);                //
std::optional<std::string> bytes_of_names(std::string_view name);  // nothing when a character names no byte

}  // namespace flashgpt
