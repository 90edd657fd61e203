#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "flashgpt/error.h"

namespace flashgpt {

const char* name_of(ScheduleKind k) {
  switch (k) {
    case ScheduleKind::kCosine: return "cosine";
    case ScheduleKind::kLinear: return "linear";
    case ScheduleKind::kConstant: return "constant";
    case ScheduleKind::kWsd: return "wsd";
  }
  return "?";
}

ScheduleKind schedule_named(const std::string& name) {
  for (ScheduleKind k : {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant, ScheduleKind::kWsd})
    if (name == name_of(k)) return k;
  fail("train_params.schedule = ", name, ", expected cosine, linear, constant or wsd");
}

double learning_rate(const Schedule& s, std::int64_t step) {
  step = std::max<std::int64_t>(step, 1);
  if (step < s.warmup) return s.peak * static_cast<double>(step) / static_cast<double>(s.warmup);
  if (s.kind == ScheduleKind::kConstant) return s.peak;
  const double last = static_cast<double>(s.steps), low = s.peak * s.final_fraction;
  double start = static_cast<double>(std::max<std::int64_t>(s.warmup, 1));  // the step that still has the peak
  if (s.kind == ScheduleKind::kWsd) start = std::max(start, last * (1.0 - s.decay_fraction));
  const double t =
      last > start ? std::clamp((static_cast<double>(step) - start) / (last - start), 0.0, 1.0) : (step >= s.steps ? 1.0 : 0.0);
  switch (s.kind) {
    case ScheduleKind::kCosine: return low + (s.peak - low) * 0.5 * (1.0 + std::cos(3.14159265358979323846 * t));
    case ScheduleKind::kLinear: return s.peak + (low - s.peak) * t;
    default: return low + (s.peak - low) * (1.0 - std::sqrt(t));
  }
}

double relative_step_size(std::int64_t step) {
  return std::min(1e-2, 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(step, 1))));
}

}  // namespace flashgpt
