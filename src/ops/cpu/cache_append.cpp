#include "ops/cache_append.h"

#include <cstring>

namespace flashgpt {

void check(const CacheAppend& op) {
  require(op.k_cache.rank() == 4 && op.k_cache.shape == op.v_cache.shape && op.k_cache.contiguous() && op.v_cache.contiguous(),
          "cache_append: k_cache ", op.k_cache.shape.str(), ", v_cache ", op.v_cache.shape.str(),
          ", expected two contiguous [batch, capacity, kv_heads, head_dim]");
  const std::int64_t batch = op.k_cache.dim(0), columns = (op.heads + 2 * op.k_cache.dim(2)) * op.k_cache.dim(3);
  require(op.qkv.rank() == 2 && op.qkv.dim(1) == columns && batch > 0 && op.qkv.dim(0) % batch == 0, "cache_append: qkv ",
          op.qkv.shape.str(), ", expected [batch * length, ", columns, "] with batch = ", batch);
  require(op.starts.shape == Shape{batch} && op.new_lengths.shape == Shape{batch}, "cache_append: starts ", op.starts.shape.str(),
          ", new_lengths ", op.new_lengths.shape.str(), ", expected [", batch, "]");
}

void launch(CpuStream s, const CacheAppend& op, Scratch) {
  const std::int64_t batch = op.k_cache.dim(0), capacity = op.k_cache.dim(1), row = op.k_cache.dim(2) * op.k_cache.dim(3);
  const std::int64_t length = op.qkv.dim(0) / batch, q_columns = op.heads * op.k_cache.dim(3);
  const std::size_t element = size_of(op.qkv.dtype), bytes = static_cast<std::size_t>(row) * element;
  const auto* starts = op.starts.as<std::int32_t>();
  const auto* lengths = op.new_lengths.as<std::int32_t>();
  s.pool.parallel_for(batch, [&](std::int64_t b, int) {
    for (std::int64_t i = 0; i < lengths[b] && i < length; ++i) {
      const std::int64_t slot = starts[b] + i;
      if (slot < 0 || slot >= capacity) continue;
      const auto* k =
          static_cast<const std::byte*>(op.qkv.data) + static_cast<std::size_t>((b * length + i) * op.qkv.stride(0) + q_columns) * element;
      const std::size_t to = static_cast<std::size_t>(b * capacity + slot) * bytes;
      std::memcpy(static_cast<std::byte*>(op.k_cache.data) + to, k, bytes);
      std::memcpy(static_cast<std::byte*>(op.v_cache.data) + to, k + bytes, bytes);
    }
  });
}

}  // namespace flashgpt
