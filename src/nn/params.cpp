#include "nn/params.h"

#include <array>

#include "core/copy.h"
#include "core/philox.h"

namespace flashgpt {
namespace {

std::int64_t padded(std::int64_t n) { return (n + kParamAlignment - 1) / kParamAlignment * kParamAlignment; }

}  // namespace

std::int64_t count(const ParamList& params) {
  std::int64_t n = 0;
  for (const ParamSpec& p : params) n += p.shape.numel();
  return n;
}

ParamTensors allocate(Context& ctx, const ParamList& params, Dtype dtype, MemClass cls) {
  struct Range {
    std::int64_t elements = 0, at = 0;
    Tensor flat;
  };
  std::vector<std::array<Range, 2>> ranges;  // of each group: decayed, plain
  for (const ParamSpec& p : params) {
    if (static_cast<std::size_t>(p.group) >= ranges.size()) ranges.resize(static_cast<std::size_t>(p.group) + 1);
    ranges[static_cast<std::size_t>(p.group)][p.decay ? 0 : 1].elements += padded(p.shape.numel());
  }
  ParamTensors t;
  for (std::array<Range, 2>& group : ranges) {
    for (Range& r : group)
      if (r.elements > 0) r.flat = ctx.tensor({r.elements}, dtype, cls);
    t.groups.push_back({.decayed = group[0].flat, .plain = group[1].flat});
  }
  for (const ParamSpec& p : params) {
    Range& r = ranges[static_cast<std::size_t>(p.group)][p.decay ? 0 : 1];
    const std::int64_t n = p.shape.numel();
    t.tensors.push_back(n > 0 ? r.flat.slice(0, r.at, n).view(p.shape) : Tensor{});
    r.at += padded(n);
  }
  return t;
}

void fill_zero(Context& ctx, const ParamTensors& t) {
  for (const ParamTensors::Group& g : t.groups)
    for (const Tensor& flat : {g.decayed, g.plain})
      if (flat) run(ctx, Fill{.y = flat, .value = 0});
}

void initialise(Context& ctx, const ParamList& params, const ParamTensors& weights, std::uint64_t seed) {
  fill_zero(ctx, weights);
  if (ctx.recording()) return;
  std::vector<float> host;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const ParamSpec& p = params[i];
    if (p.init.kind == InitKind::kZeros) continue;
    host.assign(static_cast<std::size_t>(p.shape.numel()), 1.0f);
    if (p.init.kind == InitKind::kNormal)
      for (std::size_t j = 0; j < host.size(); j += 4) {
        const PhiloxBlock r = philox(seed, RandomStream::kInit, static_cast<std::uint32_t>(i), j / 4);
        const auto a = normal(r[0], r[1]), b = normal(r[2], r[3]);
        const float four[4] = {a[0], a[1], b[0], b[1]};
        for (std::size_t k = 0; k < 4 && j + k < host.size(); ++k) host[j + k] = four[k] * p.init.std;
      }
    upload(ctx, weights.tensors[i], host.data());
  }
}

}  // namespace flashgpt
