#include "nn/mha.h"

#include "ops/cache_append.h"
#include "ops/qk_norm.h"
#include "ops/qkv_rope.h"

namespace flashgpt {
namespace {

// q, k and v as strided views of packed rows: [N, heads, head_dim] for documents, else [batch, length, heads, head_dim].
struct QkvViews {
  Tensor q, k, v;
};

Tensor heads_view(const Tensor& rows, std::int64_t first_column, std::int64_t heads, const FlashMHA& m, const Sequences& seq,
                  bool documents) {
  const Tensor t = rows.slice(1, first_column, heads * m.head_dim).split(1, heads, m.head_dim);
  return documents ? t : t.split(0, seq.batch, seq.length);
}

QkvViews qkv_views(const Tensor& qkv, const FlashMHA& m, const Sequences& seq, bool documents) {
  const std::int64_t k_column = m.heads * m.head_dim, v_column = k_column + m.kv_heads * m.head_dim;
  return {heads_view(qkv, 0, m.heads, m, seq, documents), heads_view(qkv, k_column, m.kv_heads, m, seq, documents),
          heads_view(qkv, v_column, m.kv_heads, m, seq, documents)};
}

AttentionSpec spec_of(const FlashMHA& m, const Sequences& seq, Dtype dtype) {
  AttentionSpec spec;
  spec.varlen = static_cast<bool>(seq.cu_seqlens);
  spec.batch = spec.varlen ? seq.cu_seqlens.dim(0) - 1 : seq.batch;
  spec.max_q = spec.max_k = seq.length;
  spec.total_q = spec.total_k = seq.batch * seq.length;
  spec.heads = m.heads;
  spec.kv_heads = m.kv_heads;
  spec.head_dim = spec.v_head_dim = m.head_dim;
  spec.dtype = dtype;
  spec.causal = m.causal;
  if (m.window > 0) spec.window_left = m.window - 1;
  spec.alibi = static_cast<bool>(seq.alibi_slopes);
  return spec;
}

}  // namespace

void FlashMHA::forward(Context& ctx, const MhaParams& w, const Sequences& seq, const Tensor& x, MhaActs& a, const Tensor& y, Steps steps,
                       const KvCache* cache) const {
  if (steps & kQkv) {
    FusedDense::forward(ctx, w.qkv, x, a.qkv, qk_norm);  // the norm comes between bias and rotation
    if (qk_norm)
      run(ctx, QkNorm{.qkv = a.qkv,
                      .x = a.qk,
                      .rstd = a.qk_rstd,
                      .q_weight = w.q_norm,
                      .k_weight = w.k_norm,
                      .heads = heads,
                      .kv_heads = kv_heads,
                      .eps = qk_norm_eps});
    const Tensor bias = qk_norm ? Tensor{} : w.qkv.b;
    if (bias || seq.inv_freq)
      run(ctx, QkvRope{.qkv = a.qkv,
                       .bias = bias,
                       .positions = seq.positions,
                       .inv_freq = seq.inv_freq,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = head_dim});
    if (cache)
      run(ctx, CacheAppend{.k_cache = cache->k,
                           .v_cache = cache->v,
                           .qkv = a.qkv,
                           .starts = cache->starts,
                           .new_lengths = cache->new_lengths,
                           .heads = heads});
  }
  if (steps & kAttention) {
    const bool documents = static_cast<bool>(seq.cu_seqlens);
    const QkvViews p = qkv_views(a.qkv, *this, seq, documents);
    attention::Forward op{.o = heads_view(a.att, 0, heads, *this, seq, documents),
                          .lse = a.lse,
                          .q = p.q,
                          .k = p.k,
                          .v = p.v,
                          .cu_seqlens_q = seq.cu_seqlens,
                          .cu_seqlens_k = seq.cu_seqlens,
                          .alibi_slopes = seq.alibi_slopes,
                          .spec = spec_of(*this, seq, x.dtype),
                          .implementation = implementation};
    if (cache) {
      op.k = cache->k;
      op.v = cache->v;
      op.seqused_q = cache->new_lengths;
      op.seqused_k = cache->lengths;
      op.spec.max_k = cache->k.dim(1);
    }
    run(ctx, op);
  }
  if (steps & kOut) FusedDense::forward(ctx, w.out, a.att, y, true);
}

void FlashMHA::backward(Context& ctx, const MhaParams& w, const MhaParams& g, const Sequences& seq, const Tensor& x, const MhaActs& a,
                        const Tensor& dy, const Tensor& dx) const {
  const std::int64_t n = x.dim(0);
  const bool documents = static_cast<bool>(seq.cu_seqlens);
  Scope scope(ctx);
  const Tensor d_att = ctx.tensor({n, heads * head_dim}, x.dtype, MemClass::kWorkspace);
  const Tensor d_qkv = ctx.tensor({n, qkv_columns()}, x.dtype, MemClass::kWorkspace);
  FusedDense::backward(ctx, w.out, g.out, a.att, dy, d_att, true);
  const QkvViews p = qkv_views(a.qkv, *this, seq, documents), d = qkv_views(d_qkv, *this, seq, documents);
  run(ctx, attention::Backward{.dq = d.q,
                               .dk = d.k,
                               .dv = d.v,
                               .dout = heads_view(d_att, 0, heads, *this, seq, documents),
                               .q = p.q,
                               .k = p.k,
                               .v = p.v,
                               .o = heads_view(a.att, 0, heads, *this, seq, documents),
                               .lse = a.lse,
                               .cu_seqlens_q = seq.cu_seqlens,
                               .cu_seqlens_k = seq.cu_seqlens,
                               .alibi_slopes = seq.alibi_slopes,
                               .spec = spec_of(*this, seq, x.dtype),
                               .implementation = implementation});
  const Tensor dbias = qk_norm ? Tensor{} : g.qkv.b;
  if (dbias || seq.inv_freq)
    run(ctx, QkvRopeGrad{.dqkv = d_qkv,
                         .dbias = dbias,
                         .positions = seq.positions,
                         .inv_freq = seq.inv_freq,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .head_dim = head_dim});
  if (qk_norm)
    run(ctx, QkNormGrad{.dqkv = d_qkv,
                        .dq_weight = g.q_norm,
                        .dk_weight = g.k_norm,
                        .x = a.qk,
                        .rstd = a.qk_rstd,
                        .q_weight = w.q_norm,
                        .k_weight = w.k_norm,
                        .heads = heads,
                        .kv_heads = kv_heads});
  FusedDense::backward(ctx, w.qkv, g.qkv, x, d_qkv, dx, qk_norm);
}

}  // namespace flashgpt
