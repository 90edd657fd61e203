// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace flashgpt {

std::string bytes_text(std::uint64_t bytes);  // "512 B", "1.50 KiB", "61.2 GiB": three digits
std::string count_text(double count);         // "950", "1.84M", "124M", "6.70B": three digits, powers of 1000
std::string rate_text(double per_second);     // "1.84M/s"
std::string duration_text(double seconds);    // "285 ms", "3.20 s", "12m 05s", "1h 29m", "3d 04h"; not finite or negative: "?"
std::string fixed_text(double value, int decimals);
std::string hex_text(std::uint64_t value);             // 16 digits: checksums
std::string short_text(double value, int digits = 3);  // "%g": "6e-05", "0.812", "nan"

}  // namespace flashgpt
