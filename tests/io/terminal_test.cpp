#include "io/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "io/process.h"

namespace flashgpt {
namespace {

// What was written to the end of a pipe.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(::pipe(ends_), 0);
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  std::string text() const {
    char buffer[4096];
    const ssize_t n = ::read(ends_[0], buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : "";
  }

 private:
  int ends_[2];
};

// A terminal of our own: text written to `screen` by the program is read from `master`.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    screen_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    ::ioctl(screen_, TIOCSWINSZ, &size);
  }
  ~Terminal() {
    if (screen_ >= 0) ::close(screen_);
    if (master_ >= 0) ::close(master_);
  }
  int screen() const { return screen_; }
  std::string text() const {
    char buffer[4096];
    const ssize_t n = ::read(master_, buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : "";
  }

 private:
  int master_ = -1, screen_ = -1;
};

// An environment variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = ::getenv(name)) old_ = old, had_ = true;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  const Pipe pipe;
  Progress progress(pipe.in(), is_terminal(pipe.in()), 0);
  EXPECT_FALSE(progress.live());
  progress.update("step 1");
  progress.update("step 2");
  progress.note("saved");
  progress.finish();
  EXPECT_EQ(pipe.text(), "step 1\nstep 2\nsaved\n");
}

TEST(Progress, OneLineOnATerminal) {
  const Pipe pipe;
  {
    Progress progress(pipe.in(), true, 0);
    progress.update("step 1");
    progress.update("step 2");
    progress.note("saved");
    progress.update("step 3");
  }
  EXPECT_EQ(pipe.text(), "\rstep 1\x1b[K\rstep 2\x1b[K\rsaved\x1b[K\nstep 2\rstep 3\x1b[K\n");
}

TEST(Progress, TooEarlyLinesAreDropped) {
  const Pipe pipe;
  Progress progress(pipe.in(), false, 1e9);
  progress.update("first");
  progress.update("second");
  progress.update("last", true);
  EXPECT_EQ(pipe.text(), "first\nlast\n");
}

TEST(Progress, ALiveLineNeverWraps) {
  const Variable term("TERM", "xterm");
  const Terminal terminal(20);
  if (terminal.screen() < 0) GTEST_SKIP() << "no pseudo terminals here";
  Progress progress(terminal.screen());
  EXPECT_TRUE(progress.live());
  EXPECT_EQ(progress.width(), 19u);
  progress.update(std::string(50, 'x'));
  EXPECT_EQ(terminal.text(), "\r" + std::string(19, 'x') + "\x1b[K");
}

TEST(Progress, AClosedTerminalDoesNotMatter) {
  Progress progress(-1, true, 0);
  progress.update("x");
  progress.note("y");
}

TEST(Color, FollowsTheEnvironment) {
  const Variable term("TERM", "xterm"), no("NO_COLOR", nullptr), force("FORCE_COLOR", nullptr), cli("CLICOLOR_FORCE", nullptr);
  const Pipe pipe;
  EXPECT_FALSE(wants_color(pipe.in()));
  {
    const Variable on("FORCE_COLOR", "1");
    EXPECT_TRUE(wants_color(pipe.in()));
    const Variable off("NO_COLOR", "1");
    EXPECT_FALSE(wants_color(pipe.in()));
  }
  {
    const Variable on("CLICOLOR_FORCE", "0"), empty("NO_COLOR", "");
    EXPECT_FALSE(wants_color(pipe.in()));
  }
  const Terminal terminal(80);
  if (terminal.screen() < 0) GTEST_SKIP() << "no pseudo terminals here";
  EXPECT_TRUE(wants_color(terminal.screen()));
  const Variable dumb("TERM", "dumb");
  EXPECT_FALSE(wants_color(terminal.screen()));
  EXPECT_FALSE(is_terminal(terminal.screen()));
}

TEST(Color, Styles) {
  EXPECT_EQ(styled("x", Style::kRed, true), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(styled("x", Style::kRed, false), "x");
  EXPECT_EQ(styled("x", Style::kPlain, true), "x");
}

TEST(StepLine, ShowsWhatFits) {
  StepLine s{.step = 120,
             .steps = 18865,
             .loss = 4.82134,
             .tokens_per_second = 1.84e6,
             .memory_bytes = 65712999629,
             .eta_seconds = 5340,
             .learning_rate = 3.2e-4,
             .grad_norm = 0.81};
  const std::string all = "step 120/18865 (0.6%) | loss 4.8213 | 1.84M tok/s | mem 61.2 GiB | eta 1h 29m | lr 0.00032 | norm 0.81";
  EXPECT_EQ(step_line(s, 1000), all);
  EXPECT_EQ(step_line(s, all.size()), all);
  EXPECT_EQ(step_line(s, 79), "step 120/18865 (0.6%) | loss 4.8213 | 1.84M tok/s | mem 61.2 GiB | eta 1h 29m");
  EXPECT_EQ(step_line(s, 30), "step 120/18865 (0.6%)");
  EXPECT_EQ(step_line(s, 4), "step");
  s.skipped = 2;
  s.loss = std::nan("");
  s.steps = 0;
  EXPECT_EQ(step_line(s, 1000), "step 120 | loss nan | 1.84M tok/s | mem 61.2 GiB | eta 1h 29m | skipped 2 | lr 0.00032 | norm 0.81");
}

TEST(ProcessMemory, SeesWhatIsTouched) {
  constexpr std::size_t kBytes = 64 << 20;
  AnonymousPeak peak;
  const ProcessMemory before = process_memory();
  EXPECT_GT(before.anonymous, 0u);
  EXPECT_GE(before.resident, before.anonymous);
  {
    std::vector<char> block(kBytes);
    std::memset(block.data(), 1, kBytes);
    peak.sample();
    EXPECT_EQ(block[kBytes / 2], 1);
  }
  peak.sample();
  EXPECT_GE(peak.above_start(), kBytes - (1 << 20));
  EXPECT_LE(peak.above_start(), kBytes + (16 << 20));
  EXPECT_GE(process_memory().peak_resident, before.resident);
}

}  // namespace
}  // namespace flashgpt
