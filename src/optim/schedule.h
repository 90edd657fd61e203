// The learning rate as a function of the step alone. Steps count from 1; the first update already has a rate above 0.
#pragma once
#include <cstdint>
#include <string>

namespace flashgpt {

enum class ScheduleKind : std::uint8_t { kCosine, kLinear, kConstant, kWsd };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0;
  double final_fraction = 0.1;  // of peak, reached at the last step (not by kConstant)
  std::int64_t steps = 0;       // of the whole run
  std::int64_t warmup = 0;      // linear from peak / warmup at step 1 to peak at step `warmup`
  double decay_fraction = 0.2;  // kWsd (warm-up, stable, decay): the last part of the steps, falling as 1 - sqrt
};

double learning_rate(const Schedule& s, std::int64_t step);
ScheduleKind schedule_named(const std::string& name);
const char* name_of(ScheduleKind k);

// Adafactor's relative step (Shazeer & Stern, 2018): min(1e-2, 1 / sqrt(step)), to be multiplied with max(eps2, rms(w)) of each tensor.
double relative_step_size(std::int64_t step);

}  // namespace flashgpt
