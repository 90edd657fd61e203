// flashgpt plan: what a training would need, from a recording; neither the memory nor the time is taken.
#include <cstdio>
#include <limits>
#include <optional>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "io/text.h"

namespace flashgpt::cli {

namespace {

struct KnownGpu {
  const char* name;
  int capability, multiprocessors;
  std::int64_t mebibytes;  // as the driver counts them
};
constexpr KnownGpu kGpus[] = {{"h200", 90, 132, 143771},   {"h100", 90, 132, 81559},     {"a100-80", 80, 108, 81920},
                              {"a100-40", 80, 108, 40960}, {"rtx5090", 120, 170, 32607}, {"rtx4090", 89, 128, 24564},
                              {"rtx3090", 86, 82, 24576}};

// The one with so much memory; an unknown size is an A100's generation.
Target gpu_with(std::int64_t bytes) {
  KnownGpu gpu{"", 80, 108, 0};
  for (const KnownGpu& g : kGpus)
    if (g.mebibytes << 20 == bytes) gpu = g;
  return {.device = {DeviceKind::kCuda, 0},
          .compute_capability = gpu.capability,
          .multiprocessors = gpu.multiprocessors,
          .memory_bytes = bytes};
}

}  // namespace

int plan(const std::vector<std::string>& args) {
  Settings s;
  OptionTable table;
  add_training_options(table, s);
  std::int64_t memory = 0;
  table.add({.key = "memory",
             .field = &memory,
             .help = "bytes that the run may take; what is free here when not given",
             .min = 0,
             .size = true,
             .words = {{"free", 0}},
             .in_file = false});
  std::int64_t gpu = 0;
  Option known{.key = "gpu",
               .field = &gpu,
               .help = "plan for this GPU, or one with so many bytes; it need not be here",
               .min = 0,
               .size = true,
               .words = {{"none", 0}},
               .in_file = false};
  for (const KnownGpu& g : kGpus) known.words.push_back({g.name, g.mebibytes << 20});
  table.add(known);
  Arguments arguments = table.split(args);
  if (show_help(
          arguments,
          "usage: flashgpt plan [CONFIG.yaml] [--preset NAME] [section.key=value ...]\n\nThe memory of a training, to the byte. The vocabulary is that of --data, prepared data, or model.vocab_size.",
          table))
    return 0;
  take_config(arguments, "plan");
  read_settings(table, arguments, s);
  const Target target = gpu == 0 ? target_of(s) : gpu_with(gpu);
  std::optional<Dataset> data;
  if (!s.data.empty()) data.emplace(Dataset::open(s.data, Verify::kSizes));
  const std::int64_t free = memory > 0 ? memory : free_memory(target);
  TrainConfig c;
  int code = 0;
  try {
    c = resolve_settings(table, s, target, data ? &*data : nullptr, free);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kDevice) throw;
    // It does not fit here: show the least that it takes all the same.
    std::fprintf(stderr, "flashgpt: %s\n", e.what());
    code = static_cast<int>(e.code());
    if (s.train.micro_batch == 0) s.train.micro_batch = 1;
    if (!s.train.recompute) s.train.recompute = Recompute::kBlock;
    c = resolve_settings(table, s, target, data ? &*data : nullptr, std::numeric_limits<std::int64_t>::max());
  }
  const MemoryPlan plan = Engine::plan(target, engine_config(c));
  std::printf("parameters        %15lld\n", static_cast<long long>(count(parameters(c.model))));
  std::printf("micro_batch       %15lld   of batch_size %lld\n", static_cast<long long>(c.micro_batch),
              static_cast<long long>(c.batch_size));
  std::printf("context_len       %15lld\n", static_cast<long long>(c.context_len));
  std::printf("recompute         %15s\n\n", name_of(*c.recompute));
  const auto classes = plan.by_class();
  for (int i = 0; i < kMemClasses; ++i) {
    const std::size_t bytes = classes[static_cast<std::size_t>(i)];
    std::printf("%-17s %15zu   %s\n", name_of(static_cast<MemClass>(i)), bytes, bytes_text(bytes).c_str());
  }
  std::printf("%-17s %15zu   %s\n", "total", plan.total_bytes(), bytes_text(plan.total_bytes()).c_str());
  return code;
}

}  // namespace flashgpt::cli
