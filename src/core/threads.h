// The one thread pool. Work is cut into tasks by shape alone, so results do not depend on the number of threads.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

namespace flashgpt {

// Threads that this process may use: --threads if given, else the smaller of the affinity mask and the cgroup's CPU quota.
int default_threads();

// True for the first of our processes on this machine, which may pin its workers; others then share its CPUs and must not. Held until exit.
bool claim_cpus();

class ThreadPool {
 public:
  // pin: each worker on one CPU of the affinity mask. A host process (the C ABI, several of our processes) passes false.
  ThreadPool(int threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls f(task, worker) for each task in [0, tasks), worker in [0, size()). Tasks are handed out in order, to whichever worker is free;
  // the caller works too. Returns when all are done. The first exception of a task is thrown here. Calls must not nest. Allocates nothing.
  template <class F> void parallel_for(std::int64_t tasks, F&& f) {
    using Fn = std::remove_reference_t<F>;
    run(
        tasks, [](void* fn, std::int64_t task, int worker) { (*static_cast<Fn*>(fn))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Task = void (*)(void*, std::int64_t, int);
  void run(std::int64_t tasks, Task call, void* fn);
  struct State;
  std::unique_ptr<State> state_;
  int size_;
};

}  // namespace flashgpt
