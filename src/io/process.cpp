#include "io/process.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "flashgpt/error.h"
#include "io/file.h"

namespace flashgpt {
namespace {

// The line "NAME:   123 kB" of the file, in bytes.
std::uint64_t field_bytes(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return 0;
  const std::size_t digits = status.find_first_of("0123456789", at + name.size());
  std::uint64_t kib = 0;
  if (digits != std::string_view::npos) std::from_chars(status.data() + digits, status.data() + status.size(), kib);
  return kib * 1024;
}

}  // namespace

ProcessMemory process_memory() {
  try {
    const std::string status = read_file("/proc/self/status");
    return {.resident = field_bytes(status, "\nVmRSS:"),
            .peak_resident = field_bytes(status, "\nVmHWM:"),
            .anonymous = field_bytes(status, "\nRssAnon:"),
            .swapped = field_bytes(status, "\nVmSwap:")};
  } catch (const Error&) {
    return {};
  }
}

AnonymousPeak::AnonymousPeak() : start_(process_memory().anonymous), peak_(start_) {}

void AnonymousPeak::sample() { peak_ = std::max(peak_, process_memory().anonymous); }

}  // namespace flashgpt
