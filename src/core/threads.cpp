// Workers wait for a generation number to change, spinning for a short while first (a step is thousands of short jobs), then sleeping on
// it.
#include "core/threads.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

constexpr int kSpins = 4000;  // about 50 us: longer than the gap between two ops of a step, shorter than anybody notices

void relax() { __builtin_ia32_pause(); }

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &set)) cpus.push_back(c);
  return cpus;
}

// CPUs that the cgroup's quota allows (v2: "max 100000" or "200000 100000"; v1: two files); 0 when there is none.
int cgroup_quota() {
  double quota = 0, period = 0;
  std::string word;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> word >> period && word != "max") quota = std::strtod(word.c_str(), nullptr);
  if (quota <= 0) {
    std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), p("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(q >> quota && p >> period)) return 0;
  }
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : 0;
}

}  // namespace

int default_threads() {
  int n = std::max<int>(1, static_cast<int>(allowed_cpus().size()));
  if (const int quota = cgroup_quota()) n = std::min(n, quota);
  return n;
}

bool claim_cpus() {
  // A name in the abstract socket space belongs to one process and goes when it ends, however it ends.
  static const bool claimed = [] {
    constexpr char kName[] = "\0flashgpt-pinned-threads";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, kName, sizeof kName - 1);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), offsetof(sockaddr_un, sun_path) + sizeof kName - 1) == 0;
  }();
  return claimed;
}

struct ThreadPool::State {
  alignas(64) std::atomic<std::uint32_t> generation{0};
  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::atomic<int> busy{0};
  std::int64_t tasks = 0;
  Task call = nullptr;
  void* fn = nullptr;
  bool stop = false;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;

  void work(int worker) {
    for (std::int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      try {
        call(fn, t, worker);
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(tasks, std::memory_order_relaxed);
      }
    }
  }

  void loop(int worker) {
    std::uint32_t seen = 0;
    while (true) {
      for (int i = 0; i < kSpins && generation.load(std::memory_order_acquire) == seen; ++i) relax();
      generation.wait(seen, std::memory_order_acquire);
      seen = generation.load(std::memory_order_acquire);
      if (stop) return;
      work(worker);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads, bool pin) : state_(std::make_unique<State>()), size_(threads) {
  require(threads >= 1 && threads <= 4096, "threads = ", threads, ", expected 1 to 4096");
  const std::vector<int> cpus = allowed_cpus();
  const bool can_pin = pin && static_cast<int>(cpus.size()) >= threads;
  auto pin_to = [&](pthread_t thread, int worker) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[static_cast<std::size_t>(worker)], &set);
    pthread_setaffinity_np(thread, sizeof set, &set);  // a refusal costs speed only
  };
  for (int w = 1; w < threads; ++w) {
    state_->threads.emplace_back([s = state_.get(), w] { s->loop(w); });
    if (can_pin) pin_to(state_->threads.back().native_handle(), w);
  }
  if (can_pin && threads > 1) pin_to(pthread_self(), 0);
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->generation.fetch_add(1, std::memory_order_acq_rel);
  state_->generation.notify_all();
  for (std::thread& t : state_->threads) t.join();
}

void ThreadPool::run(std::int64_t tasks, Task call, void* fn) {
  if (tasks <= 0) return;
  State& s = *state_;
  s.tasks = tasks;
  s.call = call;
  s.fn = fn;
  s.next.store(0, std::memory_order_relaxed);
  const int helpers = tasks > 1 ? size_ - 1 : 0;
  if (helpers > 0) {
    s.busy.store(helpers, std::memory_order_relaxed);
    s.generation.fetch_add(1, std::memory_order_acq_rel);
    s.generation.notify_all();
  }
  s.work(0);
  if (helpers > 0) {
    int left;
    for (int i = 0; i < kSpins && s.busy.load(std::memory_order_acquire) != 0; ++i) relax();
    while ((left = s.busy.load(std::memory_order_acquire)) != 0) s.busy.wait(left, std::memory_order_acquire);
  }
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace flashgpt
