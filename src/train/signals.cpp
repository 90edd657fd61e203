#include "train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace flashgpt {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  if (received.exchange(signal) != 0) _exit(128 + signal);
}

}  // namespace

void catch_stop_signals() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int s : {SIGTERM, SIGINT, SIGUSR1}) sigaction(s, &action, nullptr);
}

bool stop_requested() { return received.load(std::memory_order_relaxed) != 0; }

const char* stop_signal_name() {
  switch (received.load()) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    default: return "none";
  }
}

}  // namespace flashgpt
