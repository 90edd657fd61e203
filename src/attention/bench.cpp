#include "attention/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <ostream>
#include <random>

#include "attention/cpu/tile.h"
#include "core/memory.h"

namespace flashgpt::attention {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int kAccumulators = 12;
constexpr std::int64_t kSteps = 10000;

struct FmaLoop {
  template <int W> [[gnu::always_inline]] void run(float* out) const {
    cpu::F<W> acc[kAccumulators], a = cpu::splat<W>(0.0f), b = cpu::splat<W>(1.0f);
#pragma GCC unroll 12
    for (int r = 0; r < kAccumulators; ++r) acc[r] = cpu::F<W>{};
    for (std::int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
      for (int r = 0; r < kAccumulators; ++r) {
        cpu::fma<W>(acc[r], a, b);
        if constexpr (W == 4) asm volatile("" : "+x"(a));  // or the product would be computed once
      }
      asm volatile("" : "+x"(a));
    }
#pragma GCC unroll 12
    for (int r = 0; r < kAccumulators; ++r) a = a + acc[r];
    cpu::store<W>(out, a);
  }
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Cell {
  Forward forward;
  Backward backward;
};

// q, k, v as views into packed rows [length, 3 * width], as the model has them.
struct Buffers {
  Memory qkv, dqkv, o, dout, lse;
  std::int64_t length, width;

  Buffers(std::int64_t n, std::int64_t c)
      : qkv(bytes(n * 3 * c), {}),
        dqkv(bytes(n * 3 * c), {}),
        o(bytes(n * c), {}),
        dout(bytes(n * c), {}),
        lse(bytes(n * c), {}),
        length(n),
        width(c) {
    std::mt19937 rng(1);
    std::normal_distribution<float> d;
    for (const auto& [memory, count] : {std::pair{&qkv, n * 3 * c}, {&dout, n * c}})
      for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(memory->data())[i] = d(rng);
  }
  static std::size_t bytes(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

  Cell cell(std::int64_t head_dim, bool causal, Implementation implementation) {
    const std::int64_t heads = width / head_dim;
    auto part = [&](Memory& m, int which) {
      return Tensor(m.data(), {1, length, 3 * width}, Dtype::kF32).slice(2, which * width, width).split(2, heads, head_dim);
    };
    Cell c;
    Forward& f = c.forward;
    f.q = part(qkv, 0), f.k = part(qkv, 1), f.v = part(qkv, 2);
    f.o = Tensor(o.data(), {1, length, heads, head_dim}, Dtype::kF32);
    f.lse = Tensor(lse.data(), {1, heads, length}, Dtype::kF32);
    f.spec.batch = 1, f.spec.max_q = f.spec.max_k = length;
    f.spec.heads = f.spec.kv_heads = heads, f.spec.head_dim = f.spec.v_head_dim = head_dim;
    f.spec.causal = causal;
    f.implementation = implementation;
    Backward& b = c.backward;
    b.dq = part(dqkv, 0), b.dk = part(dqkv, 1), b.dv = part(dqkv, 2);
    b.q = f.q, b.k = f.k, b.v = f.v, b.o = f.o, b.lse = f.lse;
    b.dout = Tensor(dout.data(), f.o.shape, Dtype::kF32);
    b.spec = f.spec;
    b.implementation = implementation;
    return c;
  }
};

template <class Op> double timed(ThreadPool& pool, const Op& op, Memory& scratch) {
  const Clock::time_point start = Clock::now();
  launch(CpuStream{pool}, op, Scratch{scratch.data(), scratch.bytes()});
  return seconds_since(start);
}

}  // namespace

double fma_peak_gflops(ThreadPool& pool, double seconds) {
  const Isa isa = simd::isa();
  const int lanes = isa == Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4;
  std::vector<double> rate(static_cast<std::size_t>(pool.size()), 0.0);
  pool.parallel_for(pool.size(), [&](std::int64_t task, int) {
    alignas(64) float sink[16];
    const Clock::time_point start = Clock::now();
    std::int64_t loops = 0;
    do {
      simd::call(isa, FmaLoop{}, &sink[0]);
      ++loops;
    } while (seconds_since(start) < seconds);
    rate[static_cast<std::size_t>(task)] = static_cast<double>(loops * kSteps * kAccumulators * lanes * 2) / seconds_since(start) / 1e9;
  });
  double sum = 0;
  for (double r : rate) sum += r;
  return sum;
}

BenchResult bench_cpu(ThreadPool& pool, const BenchOptions& options, const std::function<void(const BenchRow&)>& on_row) {
  BenchResult result;
  result.isa = simd::isa();
  result.threads = pool.size();
  const Target target = cpu_target(pool.size());
  std::vector<double> all_peaks;
  for (std::int64_t length : options.lengths) {
    Buffers buffers(length, options.width);
    for (std::int64_t head_dim : options.head_dims) {
      require(head_dim > 0 && options.width % head_dim == 0, "bench attention: head_dim = ", head_dim, ", expected a divisor of ",
              options.width);
      for (bool causal : {false, true}) {
        std::vector<Cell> cells{buffers.cell(head_dim, causal, Implementation::kFlash)};
        if (Cell c = buffers.cell(head_dim, causal, Implementation::kStandard);
            options.standard && scratch_bytes(target, c.backward) < options.standard_limit)
          cells.push_back(c);
        std::vector<Memory> scratch;
        for (const Cell& c : cells) {
          check(c.forward);
          check(c.backward);
          scratch.emplace_back(std::max({scratch_bytes(target, c.forward), scratch_bytes(target, c.backward), std::size_t{64}}), Device{});
        }
        std::vector<std::vector<double>> times(2 * cells.size());
        std::vector<double> peaks;
        const Clock::time_point start = Clock::now();
        for (int round = 0; round < options.rounds && (round < 3 || seconds_since(start) < options.seconds); ++round) {
          peaks.push_back(fma_peak_gflops(pool));
          for (std::size_t i = 0; i < cells.size(); ++i) {
            times[2 * i].push_back(timed(pool, cells[i].forward, scratch[i]));
            times[2 * i + 1].push_back(timed(pool, cells[i].backward, scratch[i]));
          }
        }
        const double peak = median(peaks);
        all_peaks.push_back(peak);
        for (std::size_t i = 0; i < times.size(); ++i) {
          const Cell& c = cells[i / 2];
          BenchRow row{.implementation = i / 2 == 0 ? "flashgpt-cpu" : "flashgpt-standard",
                       .heads = options.width / head_dim,
                       .head_dim = head_dim,
                       .seqlen = length,
                       .causal = causal,
                       .backward = i % 2 == 1};
          const double seconds = median(times[i]);
          row.ms = seconds * 1e3;
          row.tflops = (row.backward ? Backward::flops(c.backward) : Forward::flops(c.forward)) / seconds / 1e12;
          row.peak_share = row.tflops * 1e3 / peak;
          row.extra_bytes = row.backward ? scratch_bytes(target, c.backward) : scratch_bytes(target, c.forward);
          result.rows.push_back(row);
          if (on_row) on_row(row);
        }
      }
    }
  }
  result.fma_peak_gflops = all_peaks.empty() ? 0 : median(all_peaks);
  return result;
}

std::string bench_header() { return "implementation      length   D heads  mask    pass        ms    GFLOP/s  of FMA peak  extra MB"; }

std::string bench_line(const BenchRow& r) {
  char line[160];
  std::snprintf(line, sizeof line, "%-18s %7lld %3lld %5lld  %-6s  %-8s %8.2f %8.1f %10.1f%% %9.1f", r.implementation.c_str(),
                static_cast<long long>(r.seqlen), static_cast<long long>(r.head_dim), static_cast<long long>(r.heads),
                r.causal ? "causal" : "full", r.backward ? "backward" : "forward", r.ms, r.tflops * 1e3, r.peak_share * 100,
                static_cast<double>(r.extra_bytes) / 1e6);
  return line;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) {
      const std::size_t at = line.find(": ");
      return at == std::string::npos ? "unknown" : line.substr(at + 2);
    }
  return "unknown";
}

void write_bench_json(std::ostream& out, const BenchResult& result, const std::string& date, const std::string& commit,
                      const std::string& machine) {
  out << "{\n  \"what\": \"attention\",\n  \"date\": \"" << date << "\",\n  \"commit\": \"" << commit << "\",\n  \"machine\": {\""
      << (result.threads > 0 ? "cpu" : "gpu") << "\": \"" << machine << "\", \"cores\": " << result.threads << ", \"isa\": \""
      << name_of(result.isa) << "\", \"fma_peak_gflops\": " << result.fma_peak_gflops << "},\n  \"rows\": [";
  const char* separator = "\n";
  for (const BenchRow& r : result.rows) {
    out << separator << "    {\"implementation\": \"" << r.implementation << "\", \"dtype\": \"" << r.dtype << "\", \"batch\": " << r.batch
        << ", \"heads\": " << r.heads << ", \"kv_heads\": " << r.heads << ", \"head_dim\": " << r.head_dim
        << ", \"causal\": " << (r.causal ? "true" : "false") << ", \"seqlen\": " << r.seqlen << ", \"features\": \"\", \"pass\": \""
        << (r.backward ? "backward" : "forward") << "\", \"state\": \"burst\", \"ms\": " << r.ms << ", \"tflops\": " << r.tflops
        << ", \"peak_share\": " << r.peak_share << ", \"extra_bytes\": " << r.extra_bytes << "}";
    separator = ",\n";
  }
  out << "\n  ]\n}\n";
}

}  // namespace flashgpt::attention
