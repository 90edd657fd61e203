#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

TEST(ThreadPool, EveryTaskRunsOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads, false);
    for (int tasks : {0, 1, 2, 100, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(tasks));
      pool.parallel_for(tasks, [&](std::int64_t t, int worker) {
        EXPECT_TRUE(worker >= 0 && worker < threads);
        seen[static_cast<std::size_t>(t)]++;
      });
      for (auto& s : seen) EXPECT_EQ(s, 1);
    }
  }
}

TEST(ThreadPool, ManyShortJobs) {
  ThreadPool pool(3, false);
  std::atomic<std::int64_t> sum{0};
  for (int i = 0; i < 20000; ++i) pool.parallel_for(4, [&](std::int64_t t, int) { sum += t; });
  EXPECT_EQ(sum, 20000 * 6);
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(2, false);
  EXPECT_THROW(pool.parallel_for(50, [](std::int64_t t, int) { require(t != 7, "task ", t); }), Error);
  std::atomic<int> done{0};
  pool.parallel_for(10, [&](std::int64_t, int) { ++done; });
  EXPECT_EQ(done, 10);
}

TEST(ThreadPool, BadSizeIsAnError) { EXPECT_THROW(ThreadPool(0, false), Error); }

}  // namespace
}  // namespace flashgpt
