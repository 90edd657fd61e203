#include "data/tokenizer/byte_names.h"

#include <array>
#include <cstdint>

#include "data/tokenizer/unicode.h"

namespace flashgpt {
namespace {

constexpr int kBytes = 256, kFirstOther = 0x100;

struct Names {
  std::array<std::uint32_t, kBytes> code{};
  std::array<int, 2 * kBytes> byte{};  // -1: none
};

const Names& names() {
  static const Names all = [] {
    Names n;
    n.byte.fill(-1);
    auto other = static_cast<std::uint32_t>(kFirstOther);
    for (int b = 0; b < kBytes; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const auto i = static_cast<std::size_t>(b);
      n.code[i] = printable ? static_cast<std::uint32_t>(b) : other++;
      n.byte[n.code[i]] = b;
    }
    return n;
  }();
  return all;
}

}  // namespace

std::string name_of_byte(int byte) {
  std::string name;
  append_utf8(name, names().code[static_cast<std::size_t>(byte)]);
  return name;
}

std::string names_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, names().code[static_cast<unsigned char>(c)]);
  return text;
}

std::optional<std::string> bytes_of_names(std::string_view name) {
  std::string bytes;
  for (const char *at = name.data(), *end = at + name.size(); at < end;) {
    const Character c = decode_utf8(at, end);
    if (c.code >= names().byte.size() || names().byte[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(names().byte[c.code]);
    at += c.bytes;
  }
  return bytes;
}

}  // namespace flashgpt
