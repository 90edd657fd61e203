// What a run shows while it goes: one live line on a terminal, plain lines now and then elsewhere. Nothing here fails a run: what cannot be
// written to the terminal is dropped.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace flashgpt {

bool is_terminal(int fd);  // one that can move its cursor: a TTY, TERM not "dumb"

// Colour on fd: NO_COLOR (not empty) forbids it, else CLICOLOR_FORCE or FORCE_COLOR (not empty, not "0") demands it, else is_terminal().
bool wants_color(int fd);

enum class Style : std::uint8_t { kPlain, kBold, kDim, kRed, kGreen, kYellow };
std::string styled(std::string_view text, Style style, bool color);  // the text itself without colour

class Progress {
 public:
  explicit Progress(int fd);  // live when fd is a terminal
  // interval: seconds between two lines; sooner ones are dropped.
  Progress(int fd, bool live, double interval);
  ~Progress();  // finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool live() const { return live_; }
  std::size_t width() const;  // columns that a live line may take; a large number when not live

  // Shows the line (plain ASCII) in place of the one before; when not live, below it. now: even if the last one was a moment ago.
  void update(std::string_view line, bool now = false);
  void note(std::string_view text);  // a line that stays, above the live one
  void finish();                     // the live line stays as it is; a later update() starts another

 private:
  void put(const std::string& text);

  int fd_;
  bool live_;
  double interval_;
  bool open_ = false;  // a live line stands on the terminal
  bool shown_ = false;
  std::string last_;
  std::chrono::steady_clock::time_point last_time_{};
};

struct StepLine {
  std::int64_t step = 0, steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  std::uint64_t memory_bytes = 0;
  double eta_seconds = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  std::int64_t skipped = 0;
};

// "step 120/18865 (0.6%) | loss 4.8213 | 1.84M tok/s | mem 61.2 GiB | eta 1h 29m | lr 0.00032 | norm 0.81": as many fields, from the left,
// as fit in the width.
std::string step_line(const StepLine& s, std::size_t width);

}  // namespace flashgpt
