#include "optim/schedule.h"

#include <gtest/gtest.h>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

TEST(Schedule, WarmsUpFromAboveZeroAndEndsAtTheFinalRate) {
  for (ScheduleKind k : {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kWsd})
    for (std::int64_t warmup : {0, 1, 100, 500}) {
      const Schedule s{.kind = k, .peak = 1.0, .final_fraction = 0.1, .steps = 1000, .warmup = warmup};
      EXPECT_GT(learning_rate(s, 1), 0.0);
      EXPECT_DOUBLE_EQ(learning_rate(s, std::max<std::int64_t>(warmup, 1)), 1.0);
      EXPECT_NEAR(learning_rate(s, 1000), 0.1, 1e-12) << name_of(k) << " warmup " << warmup;
      for (std::int64_t t = 2; t <= 1000; ++t) {
        const double change = learning_rate(s, t) - learning_rate(s, t - 1);
        EXPECT_TRUE(t <= warmup ? change > 0 : change <= 1e-15) << name_of(k) << " step " << t;
      }
    }
}

TEST(Schedule, WarmupIsLinear) {
  const Schedule s{.kind = ScheduleKind::kConstant, .peak = 2.0, .steps = 10, .warmup = 4};
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 2.0);
}

TEST(Schedule, ShortRunsAreFinite) {
  for (std::int64_t steps : {1, 2, 3})
    for (std::int64_t warmup : {0, 1, 5})
      for (std::int64_t t = 0; t <= steps + 2; ++t)
        for (ScheduleKind k : {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant, ScheduleKind::kWsd}) {
          const double rate = learning_rate({.kind = k, .peak = 1.0, .steps = steps, .warmup = warmup}, t);
          EXPECT_TRUE(rate > 0 && rate <= 1.0) << name_of(k) << " step " << t << " of " << steps << " warmup " << warmup << ": " << rate;
        }
}

TEST(Schedule, RelativeStep) {
  EXPECT_DOUBLE_EQ(relative_step_size(1), 1e-2);
  EXPECT_DOUBLE_EQ(relative_step_size(40000), 0.005);
  EXPECT_THROW(schedule_named("cosin"), Error);
}

}  // namespace
}  // namespace flashgpt
