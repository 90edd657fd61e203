// The backward on 16-bit types: host side. Either dq is summed in memory by the kernel that makes dk and dv (fewer products), or, with
// spec.deterministic, made by a kernel of its own.
#include <utility>

#include "attention/cuda/implementations.h"
#include "attention/sm80/host.h"

namespace flashgpt::attention::sm80 {
namespace {

std::size_t round_up(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

struct Plan {
  Variant variant;
  BackwardShape keys, queries;
  std::size_t stats, dq_sum, k_tiles, q_tiles;  // bytes
};
Plan plan_of(const Backward& op, const Problem& p, int capability, bool whole) {
  Plan n{.variant = variant_of(op.spec, capability, whole), .keys = {}, .queries = {}, .stats = 0, .dq_sum = 0, .k_tiles = 0, .q_tiles = 0};
  n.keys = keys_shape(n.variant);
  n.queries = queries_shape(n.variant);
  const std::size_t rows = static_cast<std::size_t>(p.total_q * p.heads);
  const std::size_t sums = p.varlen ? rows : static_cast<std::size_t>(p.batch * p.heads * sum_rows(p.max_q));
  n.stats = round_up(rows * sizeof(float));
  n.dq_sum = op.spec.deterministic ? 0 : round_up(sums * static_cast<std::size_t>(n.variant.dim) * sizeof(float));
  n.k_tiles = p.varlen ? round_up(simt::list_bytes(p.total_k, p.batch, n.keys.keys)) : 0;
  n.q_tiles = p.varlen && op.spec.deterministic ? round_up(simt::list_bytes(p.total_q, p.batch, n.queries.rows)) : 0;
  return n;
}

bool all_whole(const Backward& op) {
  for (const Tensor* t : {&op.q, &op.k, &op.v, &op.dout, &op.dq, &op.dk, &op.dv})
    if (!is_whole(*t)) return false;
  return op.spec.partial_output || is_whole(op.o);
}

}  // namespace

bool carries(int capability, const Backward& op) { return carries_spec(capability, op.spec); }

std::size_t scratch_bytes(const Target& target, const Backward& op) {
  const Plan n = plan_of(op, problem_of(op), target.compute_capability, true);
  return 2 * n.stats + n.dq_sum + n.k_tiles + n.q_tiles;
}

void launch(CudaStream s, const Backward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  const Plan n = plan_of(op, p, s.capability, all_whole(op));
  const std::string arch = cuda::arch_of(s.capability);
  Arguments a = arguments_of(op, p);
  a.dout = rows_of(op.dout, p.varlen);
  a.dq = rows_of(op.dq, p.varlen);
  a.dk = rows_of(op.dk, p.varlen);
  a.dv = rows_of(op.dv, p.varlen);
  a.dlse = column_of(op.dlse, p.varlen);
  char* memory = static_cast<char*>(scratch.data);
  auto take = [&](std::size_t bytes) { return std::exchange(memory, memory + bytes); };
  a.lse2 = reinterpret_cast<float*>(take(n.stats));
  a.delta = reinterpret_cast<float*>(take(n.stats));
  if (n.dq_sum > 0) a.dq_sum = reinterpret_cast<float*>(take(n.dq_sum));
  auto list = [&](std::size_t bytes, const std::int32_t* cu, int block) {
    int* tiles = reinterpret_cast<int*>(take(bytes));
    simt::list_tiles(s, tiles, cu, p.batch, block);
    return tiles;
  };
  if (n.k_tiles > 0) a.k_tiles = list(n.k_tiles, p.cu_k, n.keys.keys);
  if (n.q_tiles > 0) a.q_tiles = list(n.q_tiles, p.cu_q, n.queries.rows);

  auto by_rows = [&](const char* kernel, int dim) {
    const Index rows = kRowThreads / lanes_of(dim);
    start(s, kernel_key(kernel, n.variant, arch), (p.total_q * p.heads + rows - 1) / rows, kRowThreads / 32, 0, a);
  };
  by_rows("prepare", n.variant.v_dim);
  if (n.dq_sum > 0)
    cuda::check(cuda::driver().cuMemsetD8Async(reinterpret_cast<cuda::Address>(a.dq_sum), 0, n.dq_sum, s.stream), "sums of dq");
  start(s, kernel_key(op.spec.deterministic ? "backward_keys" : "backward", n.variant, arch),
        simt::grid_of(s, p, p.max_k, p.kv_heads, n.keys.keys), n.keys.warps, keys_layout(n.variant).total, a);
  if (op.spec.sink && op.dsink.data) {
    a.dsink = static_cast<float*>(op.dsink.data);
    cuda::call(s, "attention/sm80/rows.cuh", "flashgpt::attention::sm80::sink_gradient", static_cast<unsigned>(p.heads), a, kRowThreads);
  }
  if (op.spec.deterministic) {
    start(s, kernel_key("backward_queries", n.variant, arch), simt::grid_of(s, p, p.max_q, p.heads, n.queries.rows), n.queries.warps,
          queries_shared(n.variant), a);
  } else {
    by_rows("finish", n.variant.dim);
  }
  if (!p.varlen) return;
  auto tail = [&](const Rows& r, const std::int32_t* cu, Index total, Index heads, Index columns) {
    clear_tail(s, {.rows = r, .wide = {}, .lse = {}, .cu = cu, .batch = p.batch, .heads = heads, .columns = columns}, total);
  };
  if (op.spec.deterministic) tail(a.dq, p.cu_q, p.total_q, p.heads, p.head_dim);
  tail(a.dk, p.cu_k, p.total_k, p.kv_heads, p.head_dim);
  tail(a.dv, p.cu_k, p.total_k, p.kv_heads, p.v_head_dim);
}

}  // namespace flashgpt::attention::sm80
