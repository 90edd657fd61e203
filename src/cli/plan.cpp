// flashgpt plan: what a training would need, from a recording; neither the memory nor the time is taken.
#include <cstdio>

#include "cli/command.h"
#include "cli/settings.h"
#include "io/text.h"

namespace flashgpt::cli {

int plan(const std::vector<std::string>& args) {
  Settings s;
  OptionTable table;
  add_training_options(table, s);
  Arguments arguments = table.split(args);
  if (arguments.help) {
    std::printf("usage: flashgpt plan [CONFIG.yaml] [--preset NAME] [section.key=value ...]\n\n%s", table.help().c_str());
    return 0;
  }
  arguments.configs.insert(arguments.configs.end(), arguments.positionals.begin(), arguments.positionals.end());
  read_settings(table, arguments, s);
  const Target target = target_of(s);
  std::optional<Dataset> data;
  if (!s.data.empty()) data.emplace(Dataset::open(s.data, Verify::kSizes));
  const TrainConfig c = resolve_settings(table, s, target, data ? &*data : nullptr);
  const MemoryPlan memory = Engine::plan(target, engine_config(c));
  std::printf("parameters        %15lld\n", static_cast<long long>(count(parameters(c.model))));
  std::printf("micro_batch       %15lld   of batch_size %lld\n", static_cast<long long>(c.micro_batch),
              static_cast<long long>(c.batch_size));
  std::printf("context_len       %15lld\n", static_cast<long long>(c.context_len));
  std::printf("recompute         %15s\n\n", name_of(*c.recompute));
  const auto classes = memory.by_class();
  for (int i = 0; i < kMemClasses; ++i) {
    const std::size_t bytes = classes[static_cast<std::size_t>(i)];
    std::printf("%-17s %15zu   %s\n", name_of(static_cast<MemClass>(i)), bytes, bytes_text(bytes).c_str());
  }
  std::printf("%-17s %15zu   %s\n", "total", memory.total_bytes(), bytes_text(memory.total_bytes()).c_str());
  return 0;
}

}  // namespace flashgpt::cli
