// flashgpt bench: attention alone, and whole training steps.
#include "attention/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <sstream>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "core/cuda/gpu.h"
#include "core/gemm.h"
#include "io/file.h"
#include "io/option_values.h"
#include "io/process.h"
#include "io/text.h"

namespace flashgpt::cli {
namespace {

std::vector<std::int64_t> numbers(const std::string& text, const char* flag) {
  std::vector<std::int64_t> v;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    const std::optional<long double> number = parse_whole(word);
    v.push_back(number && *number <= 0x1p31 ? static_cast<std::int64_t>(*number) : 0);
    if (v.back() <= 0) throw Error(ErrorCode::kUsage, cat(flag, " = ", text, ", expected positive numbers with commas between"));
  }
  return v;
}

std::string utc_now() {
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M", std::gmtime(&now));
  return date;
}

int bench_attention(const std::vector<std::string>& args) {
  Settings s;
  attention::BenchOptions options;
  std::string lengths = "512,1024,2048,4096", head_dims = "64,128", json, commit;
  OptionTable table;
  add_machine_options(table, s);
  table.add({.key = "lengths", .field = &lengths, .help = "sequence lengths"});
  table.add({.key = "head_dims", .field = &head_dims, .help = "head dims"});
  table.add({.key = "standard", .field = &options.standard, .help = "measure the standard implementation beside"});
  table.add({.key = "json", .field = &json, .help = "write the results to this file", .path = true});
  table.add({.key = "commit", .field = &commit, .help = "noted in the results"});
  const Arguments arguments = table.split(args);
  if (show_help(arguments, "usage: flashgpt bench attention", table)) return 0;
  limit_positionals(arguments, "bench attention", 0);
  table.apply(arguments);
  options.lengths = numbers(lengths, "--lengths");
  options.head_dims = numbers(head_dims, "--head-dims");
  const Target target = target_of(s);
  const auto write = [&](const attention::BenchResult& result, const std::string& machine) {
    if (json.empty()) return;
    std::ostringstream out;
    attention::write_bench_json(out, result, utc_now(), commit, machine);
    write_atomic(json, out.str());
  };
  const auto print = [](const attention::BenchRow& row) {
    std::printf("%s\n", attention::bench_line(row).c_str());
    std::fflush(stdout);
  };
  if (target.device.kind == DeviceKind::kCuda) {
    const CudaStream queue = cuda::queue_of(target);
    std::printf("%s\n%s\n", description(target).c_str(), attention::bench_header().c_str());
    write(attention::bench_cuda(queue, target, options, print), description(target));
    return 0;
  }
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  std::printf("%s, %d threads, %s: FMA peak %.0f GFLOP/s; %s\n%s\n", attention::processor_name().c_str(), target.threads,
              name_of(target.isa), attention::fma_peak_gflops(*pool, 0.1), blas_description(), attention::bench_header().c_str());
  write(attention::bench_cpu(*pool, options, print), attention::processor_name());
  return 0;
}

int bench_train(const std::vector<std::string>& args) {
  Settings s;
  std::int64_t rounds = 3;
  OptionTable table;
  add_training_options(table, s);
  table.add({.key = "rounds",
             .field = &rounds,
             .help = "micro-batches measured after one that warms up",
             .min = 1,
             .max = 1 << 20,
             .in_file = false});
  Arguments arguments = table.split(args);
  if (show_help(arguments, "usage: flashgpt bench train [CONFIG.yaml] [--preset NAME] [--micro-batch N] [--context-len N]", table))
    return 0;
  take_config(arguments, "bench train");
  read_settings(table, arguments, s);
  const Target target = target_of(s);
  if (s.train.micro_batch > 0 && !table.given("train_params.batch_size")) s.train.batch_size = s.train.micro_batch;
  const TrainConfig c = resolve_settings(table, s, target, nullptr, free_memory(target));
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  Trace trace;
  AnonymousPeak memory;
  Engine engine(target, engine_config(c), *pool, &trace);
  engine.initialise_weights(1);
  const std::int64_t n = c.micro_batch * c.context_len;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n)), positions(tokens.size()),
      bounds(tokens.size() + 1, static_cast<std::int32_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((i * 7919) % c.model.vocab_size);
    positions[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % c.context_len);
  }
  for (std::int64_t b = 0; b < c.micro_batch; ++b) bounds[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(b * c.context_len);
  std::vector<double> seconds;
  for (std::int64_t i = 0; i <= rounds; ++i) {
    if (i == 1) {
      trace.entries.clear();
      trace.timed = true;
    }
    const auto start = std::chrono::steady_clock::now();
    engine.begin_step({.learning_rate = 1e-4, .targets = n, .update = i + 1, .max_norm = c.grad_clip});
    engine.micro_step({tokens.data(), tokens.data(), positions.data(), bounds.data()});
    engine.end_step();
    if (i > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  memory.sample();
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::printf("%s, %d threads, %s; %s\n%lld parameters, %lld x %lld tokens: %.1f tokens/s (median of %lld steps with one update each)\n",
              attention::processor_name().c_str(), target.threads, name_of(target.isa), blas_description(),
              static_cast<long long>(count(engine.params())), static_cast<long long>(c.micro_batch), static_cast<long long>(c.context_len),
              static_cast<double>(n) / median, static_cast<long long>(rounds));
  const std::size_t planned = engine.memory_plan().total_bytes();
  std::printf("memory: %zu bytes planned, %zu above the start of the process's own (%.1f%%)\n\n", planned,
              static_cast<std::size_t>(memory.above_start()),
              100.0 * static_cast<double>(memory.above_start()) / static_cast<double>(planned));
  double total = 0;
  for (const TraceEntry& e : trace.entries) total += e.seconds;
  std::sort(trace.entries.begin(), trace.entries.end(), [](const TraceEntry& a, const TraceEntry& b) { return a.seconds > b.seconds; });
  std::printf("%-24s %8s %8s %12s %10s\n", "op", "ms", "share", "GFLOP/s", "GB/s");
  for (const TraceEntry& e : trace.entries)
    std::printf("%-24s %8.1f %7.1f%% %12.1f %10.1f\n", e.op, e.seconds / static_cast<double>(rounds) * 1e3, 100 * e.seconds / total,
                e.flops / e.seconds / 1e9, e.bytes / e.seconds / 1e9);
  return 0;
}

}  // namespace

int bench(const std::vector<std::string>& args) {
  const std::string what = args.empty() ? "" : args[0];
  const std::vector<std::string> rest(args.begin() + !args.empty(), args.end());
  if (what == "attention") return bench_attention(rest);
  if (what == "train") return bench_train(rest);
  if (what == "--help" || what == "-h") {
    std::printf(
        "usage: flashgpt bench attention | train [arguments]\n\nattention: forward and backward alone, against this machine's peak\n"
        "train:     whole steps of a training, op by op\n\nflashgpt bench attention --help and flashgpt bench train --help say more.\n");
    return 0;
  }
  throw Error(ErrorCode::kUsage, cat("bench: '", what, "', expected attention or train"));
}

}  // namespace flashgpt::cli
