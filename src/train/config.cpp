#include "train/config.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace flashgpt {
namespace {

// More tokens than this in a micro-batch make no product faster, they only take memory.
constexpr std::int64_t kCpuMicroBatchTokens = 8192, kGpuMicroBatchTokens = 65536;
constexpr std::int64_t kMostStepTokens = std::int64_t{1} << 32;
constexpr std::int64_t kTokenBytes = 16;                        // of a step's rows in host memory: token, target, position, bound
constexpr std::int64_t kDriverBytes = std::int64_t{600} << 20;  // an H200's context with its libraries
constexpr double kMemoryShare = 0.85;                           // of what is free, for the arena

std::int64_t read_number(const char* path) {
  std::int64_t n = -1;
  std::ifstream in(path);
  return in >> n ? n : -1;
}

double gib(double bytes) { return std::round(bytes / (1 << 30) * 100) / 100; }

}  // namespace

const char* name_of(Recompute r) {
  switch (r) {
    case Recompute::kNone: return "none";
    case Recompute::kAct: return "act";
    case Recompute::kMlp: return "mlp";
    case Recompute::kBlock: return "block";
  }
  return "?";
}

Recompute recompute_named(const std::string& name) {
  for (Recompute r : {Recompute::kNone, Recompute::kAct, Recompute::kMlp, Recompute::kBlock})
    if (name == name_of(r) || name == std::to_string(static_cast<int>(r))) return r;
  fail("train_params.recompute = ", name, ", expected none, act, mlp, block (0 to 3) or auto");
}

double default_learning_rate(std::int64_t parameters) {
  // Between the published settings: 6e-4 at 125M, 2e-4 at 1.3B, 1.2e-4 at 6.7B; small models take up to 3e-3.
  const double n = std::max(1.0, static_cast<double>(parameters));
  return std::clamp(6e-4 * std::pow(1.25e8 / n, 0.45), 6e-5, 3e-3);
}

std::int64_t free_host_memory() {
  std::int64_t free = -1;
  std::string key, unit;
  std::int64_t number;
  for (std::ifstream in("/proc/meminfo"); in >> key >> number;) {
    std::getline(in, unit);
    if (key == "MemAvailable:") free = number * 1024;
  }
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max"), used = read_number("/sys/fs/cgroup/memory.current");
  std::int64_t cache = 0;  // file contents that nobody has used lately: given up when memory is asked for
  for (std::ifstream in("/sys/fs/cgroup/memory.stat"); in >> key >> number;)
    if (key == "inactive_file") cache = number;
  if (limit > 0 && used >= 0) free = free < 0 ? limit - used + cache : std::min(free, limit - used + cache);
  return std::max<std::int64_t>(free, 0);
}

std::int64_t free_memory(const Target& target) {
  if (target.device.kind == DeviceKind::kCpu) return free_host_memory();
  return std::max<std::int64_t>(target.memory_bytes - kDriverBytes, 0);
}

EngineConfig engine_config(const TrainConfig& c) {
  return {.model = c.model,
          .optimizer = c.optimizer,
          .micro_batch = c.micro_batch,
          .context_len = c.context_len,
          .recompute = c.recompute.value_or(Recompute::kNone),
          .attention = c.attention};
}

Schedule schedule_of(const TrainConfig& c) {
  return {.kind = c.schedule,
          .peak = c.optimizer.learning_rate.value_or(0),
          .final_fraction = c.final_lr_fraction,
          .steps = c.steps,
          .warmup = c.warmup_steps.value_or(0)};
}

double step_rate(const TrainConfig& c, std::int64_t step) {
  if (!c.optimizer.relative()) return learning_rate(schedule_of(c), step);
  const auto warmup = static_cast<double>(std::max<std::int64_t>(c.warmup_steps.value_or(0), 1));
  return relative_step_size(step) * std::min(1.0, static_cast<double>(step) / warmup);
}

TrainConfig resolve(TrainConfig c, const Target& target, std::int64_t free_memory) {
  auto positive = [](const char* field, std::int64_t v) {
    require(v > 0, "train_params.", field, " = ", v, ", expected a positive number");
  };
  auto not_negative = [](const char* field, auto v) { require(v >= 0, "train_params.", field, " = ", v, ", expected 0 or more"); };
  if (c.context_len == 0) c.context_len = c.model.context_len;
  positive("context_len", c.context_len);
  if (!c.model_context_given) c.model.context_len = std::max(c.model.context_len, c.context_len);
  c.model = complete(c.model);
  positive("batch_size", c.batch_size);
  positive("steps", c.steps);
  positive("log_every", c.log_every);
  positive("max_skips", c.max_skips);
  positive("max_shard_size", c.max_shard_size);
  not_negative("micro_batch", c.micro_batch);
  not_negative("eval_every", c.eval_every);
  not_negative("eval_rows", c.eval_rows);
  not_negative("save_every", c.save_every);
  not_negative("keep_last", c.keep_last);
  not_negative("grad_clip", c.grad_clip);
  not_negative("max_seconds", c.max_seconds);
  require(c.final_lr_fraction >= 0 && c.final_lr_fraction <= 1, "train_params.final_lr_fraction = ", c.final_lr_fraction,
          ", expected 0 to 1");
  check(c.optimizer);
  if (c.optimizer.kind == OptimizerKind::kAdamW && !c.optimizer.learning_rate)
    c.optimizer.learning_rate = default_learning_rate(count(parameters(c.model)));
  if (!c.warmup_steps) c.warmup_steps = std::min(std::max<std::int64_t>(c.steps / 50, 10), std::max<std::int64_t>(c.steps / 10, 1));
  not_negative("warmup_steps", *c.warmup_steps);

  if (c.micro_batch > 0) {
    require(c.batch_size % c.micro_batch == 0, "train_params.micro_batch = ", c.micro_batch,
            ", expected a divisor of batch_size = ", c.batch_size);
  }
  // Bounds of documents in a micro-batch are 32-bit numbers.
  require(c.context_len < (std::int64_t{1} << 31) / std::max<std::int64_t>(c.micro_batch, 1), "train_params.micro_batch = ", c.micro_batch,
          ", context_len = ", c.context_len, ", expected fewer than 2147483648 tokens in a micro-batch");
  require(c.batch_size <= kMostStepTokens / c.context_len, "train_params.batch_size = ", c.batch_size, ", context_len = ", c.context_len,
          ", expected at most ", kMostStepTokens, " tokens in a step");
  const bool on_host = target.device.kind == DeviceKind::kCpu;
  const std::int64_t budget = static_cast<std::int64_t>(kMemoryShare * static_cast<double>(free_memory)) -
                              (on_host ? c.batch_size * c.context_len * kTokenBytes : 0);
  auto bytes_of = [&](std::int64_t rows, Recompute level) {
    TrainConfig t = c;
    t.micro_batch = rows;
    t.recompute = level;
    return static_cast<std::int64_t>(Engine::plan(target, engine_config(t)).total_bytes());
  };
  const std::int64_t most_tokens = on_host ? kCpuMicroBatchTokens : kGpuMicroBatchTokens;
  const std::int64_t most_rows =
      c.micro_batch > 0 ? c.micro_batch : std::min(c.batch_size, std::max<std::int64_t>(1, most_tokens / c.context_len));
  std::int64_t smallest = 0;
  // A smaller micro-batch costs little, recomputation costs up to a third of the work: try the former first.
  for (Recompute level : {Recompute::kNone, Recompute::kAct, Recompute::kMlp, Recompute::kBlock}) {
    if (c.recompute && level != *c.recompute) continue;
    for (std::int64_t rows = most_rows; rows >= 1; --rows) {
      if (c.micro_batch > 0 ? rows != c.micro_batch : c.batch_size % rows != 0) continue;
      smallest = bytes_of(rows, level);
      if (smallest > budget) continue;
      c.micro_batch = rows;
      c.recompute = level;
      return c;
    }
  }
  throw Error(ErrorCode::kDevice,
              cat("the run needs ", gib(static_cast<double>(smallest)), " GiB with micro_batch = ", c.micro_batch ? c.micro_batch : 1,
                  " and recompute = ", c.recompute ? name_of(*c.recompute) : "block", ", but ", gib(static_cast<double>(budget)),
                  " GiB are free for it; try ", c.recompute && *c.recompute != Recompute::kBlock ? "recompute=auto, " : "",
                  c.micro_batch > 1 ? "micro_batch=auto, " : "", c.optimizer.kind == OptimizerKind::kAdamW ? "optimizer=adafactor, " : "",
                  "a smaller context_len than ", c.context_len, " or a smaller model"));
}

}  // namespace flashgpt
