// Measures attention. On the CPU: forward and backward of the tiled and of the standard implementation over lengths and head dims, each as
// a fraction of the FMA peak that is measured between the runs. Rounds are interleaved and medians reported, since shared machines drift.
#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "attention/attention.h"

namespace flashgpt::attention {

struct BenchOptions {
  std::vector<std::int64_t> lengths = {512, 1024, 2048, 4096};
  std::vector<std::int64_t> head_dims = {64, 128};
  std::int64_t width = 768;  // heads * head_dim
  bool standard = true;      // measure it too, where its matrices take less than standard_limit bytes
  std::size_t standard_limit = std::size_t{1} << 31;
  int rounds = 7;  // at most; fewer when a cell takes longer than `seconds`, at least 3
  double seconds = 2.0;
};

struct BenchRow {
  std::string implementation;  // flashgpt-cpu, flashgpt-standard, flashgpt-cuda
  const char* dtype = "fp32";
  std::int64_t batch = 1, heads = 0, head_dim = 0, seqlen = 0;
  bool causal = false, backward = false;
  double ms = 0;
  double tflops = 0;      // useful: causal counts the triangle
  double peak_share = 0;  // of the FMA peak in the same rounds
  std::size_t extra_bytes = 0;
};

struct BenchResult {
  double fma_peak_gflops = 0;  // all threads
  Isa isa = Isa::kPortable;
  int threads = 0;  // 0: measured on a GPU
  std::vector<BenchRow> rows;
};

// Multiply-adds a second that all workers reach on registers, times two, in GFLOP/s; takes about `seconds`.
double fma_peak_gflops(ThreadPool& pool, double seconds = 0.02);

// on_row is called as each row is measured.
BenchResult bench_cpu(ThreadPool& pool, const BenchOptions& options, const std::function<void(const BenchRow&)>& on_row);

// The same on a GPU in bf16, with 16,384 tokens and heads * head_dim = 2048; no peak.
BenchResult bench_cuda(const CudaStream& s, const Target& target, const BenchOptions& options,
                       const std::function<void(const BenchRow&)>& on_row);

// A line for a terminal; header first.
std::string bench_header();
std::string bench_line(const BenchRow& row);

// The project's form of results (kind "attention"). date: 2026-01-31T12:00; machine: the processor's name.
void write_bench_json(std::ostream& out, const BenchResult& result, const std::string& date, const std::string& commit,
                      const std::string& machine);

// Name of the processor as the system gives it.
std::string processor_name();

}  // namespace flashgpt::attention
