// The second half of a sum over tokens: partials of the blocks, added in order.
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
constexpr std::int64_t kColumns = 256;  // of a task

struct Add {
  const float* partial;
  std::int64_t count, stride;
  float* out;

  template <int W> [[gnu::always_inline]] void run(std::int64_t first, std::int64_t last) const {
    for (std::int64_t c = first; c < last; c += kLanes) {
      Vec<W> total = splat<W>(0.0f);
      for (std::int64_t i = 0; i < count; ++i) total = total + load_upto<W>(partial + i * stride + c, last - c);
      store_upto<W>(out + c, load_upto<W>(out + c, last - c) + total, last - c);
    }
  }
};

}  // namespace

void add_partials(CpuStream s, const float* partial, std::int64_t count, std::int64_t stride, std::int64_t columns, float* out) {
  const Add kernel{partial, count, stride, out};
  s.pool.parallel_for((columns + kColumns - 1) / kColumns,
                      [&](std::int64_t task, int) { call(isa(), kernel, task * kColumns, std::min(columns, (task + 1) * kColumns)); });
}

}  // namespace flashgpt
