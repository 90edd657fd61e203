#include "io/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <vector>

#include "io/text.h"

namespace flashgpt {
namespace {

constexpr double kLiveInterval = 0.1, kPlainInterval = 10;  // seconds
constexpr std::size_t kUsualWidth = 80;
constexpr const char *kToLineStart = "\r", *kClearToEnd = "\x1b[K";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1 && environment("TERM") != "dumb" && !environment("TERM").empty(); }

bool wants_color(int fd) {
  if (!environment("NO_COLOR").empty()) return false;
  for (const char* force : {"CLICOLOR_FORCE", "FORCE_COLOR"})
    if (!environment(force).empty() && environment(force) != "0") return true;
  return is_terminal(fd);
}

std::string styled(std::string_view text, Style style, bool color) {
  static constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"};
  if (!color || style == Style::kPlain) return std::string(text);
  return kCodes[static_cast<int>(style)] + std::string(text) + "\x1b[0m";
}

Progress::Progress(int fd) : Progress(fd, is_terminal(fd), is_terminal(fd) ? kLiveInterval : kPlainInterval) {}

Progress::Progress(int fd, bool live, double interval) : fd_(fd), live_(live), interval_(interval) {}

Progress::~Progress() { finish(); }

std::size_t Progress::width() const {
  if (!live_) return std::numeric_limits<std::size_t>::max();
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth - 1;
  return std::max<std::size_t>(2, size.ws_col) - 1;  // a line that fills the last column may wrap
}

void Progress::put(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

void Progress::update(std::string_view line, bool now) {
  const auto time = std::chrono::steady_clock::now();
  if (!now && shown_ && std::chrono::duration<double>(time - last_time_).count() < interval_) return;
  shown_ = true;
  last_time_ = time;
  if (!live_) return put(std::string(line) + "\n");
  last_ = line.substr(0, width());
  open_ = true;
  put(kToLineStart + last_ + kClearToEnd);
}

void Progress::note(std::string_view text) {
  // In one write, so that the live line never flickers away.
  put(open_ ? kToLineStart + std::string(text) + kClearToEnd + "\n" + last_ : std::string(text) + "\n");
}

void Progress::finish() {
  if (open_) put("\n");
  open_ = false;
}

std::string step_line(const StepLine& s, std::size_t width) {
  std::vector<std::string> fields;
  std::string step = "step " + std::to_string(s.step);
  if (s.steps > 0)
    step += "/" + std::to_string(s.steps) + " (" + fixed_text(100.0 * static_cast<double>(s.step) / static_cast<double>(s.steps), 1) + "%)";
  fields.push_back(step);
  fields.push_back("loss " + fixed_text(s.loss, 4));
  fields.push_back(count_text(s.tokens_per_second) + " tok/s");
  fields.push_back("mem " + bytes_text(s.memory_bytes));
  fields.push_back("eta " + duration_text(s.eta_seconds));
  if (s.skipped > 0) fields.push_back("skipped " + std::to_string(s.skipped));
  fields.push_back("lr " + short_text(s.learning_rate));
  fields.push_back("norm " + short_text(s.grad_norm));
  std::string out;
  for (const std::string& field : fields) {
    const std::string next = out.empty() ? field : out + " | " + field;
    if (next.size() > width) break;
    out = next;
  }
  return out.empty() ? step.substr(0, width) : out;
}

}  // namespace flashgpt
