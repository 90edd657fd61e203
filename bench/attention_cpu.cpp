// bench_attention_cpu [--threads N] [--lengths 512,1024] [--head-dims 64,128] [--no-standard] [--json FILE] [--commit ID]
// Prints time, useful GFLOP/s and the fraction of the FMA peak of attention on this processor; with --json, writes the results too.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string_view>

#include "attention/bench.h"

namespace {

std::vector<std::int64_t> numbers(const char* text) {
  std::vector<std::int64_t> v;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, ',');) v.push_back(std::strtoll(word.c_str(), nullptr, 10));
  return v;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace flashgpt;
  attention::BenchOptions options;
  int threads = default_threads();
  const char *json = nullptr, *commit = "";
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string_view flag = argv[i];
      auto value = [&] {
        require(i + 1 < argc, flag, " needs a value");
        return argv[++i];
      };
      if (flag == "--threads")
        threads = std::atoi(value());
      else if (flag == "--lengths")
        options.lengths = numbers(value());
      else if (flag == "--head-dims")
        options.head_dims = numbers(value());
      else if (flag == "--no-standard")
        options.standard = false;
      else if (flag == "--json")
        json = value();
      else if (flag == "--commit")
        commit = value();
      else
        fail(flag, " is unknown, expected --threads, --lengths, --head-dims, --no-standard, --json or --commit");
    }
    ThreadPool pool(threads, true);
    std::printf("%s, %d threads, %s: FMA peak %.0f GFLOP/s\n%s\n", attention::processor_name().c_str(), threads,
                name_of(cpu_target(threads).isa), attention::fma_peak_gflops(pool, 0.1), attention::bench_header().c_str());
    const attention::BenchResult result = attention::bench_cpu(pool, options, [](const attention::BenchRow& row) {
      std::printf("%s\n", attention::bench_line(row).c_str());
      std::fflush(stdout);
    });
    if (json) {
      char date[32];
      const std::time_t now = std::time(nullptr);
      std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M", std::gmtime(&now));
      std::ofstream out(json);
      attention::write_bench_json(out, result, date, commit, attention::processor_name());
      require(out.good(), "cannot write ", json);
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_attention_cpu: %s\n", e.what());
    return static_cast<int>(e.code());
  }
  return 0;
}
