#include "nn/params.h"

#include <algorithm>

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
  ParamTensors t;
  t.tensors.resize(params.size());
  int groups = 0;
  for (const ParamSpec& p : params) groups = std::max(groups, p.group + 1);
  t.groups.resize(static_cast<std::size_t>(groups));
  for (int g = 0; g < groups; ++g) {
    for (bool decay : {true, false}) {
      std::int64_t elements = 0;
      for (const ParamSpec& p : params)
        if (p.group == g && p.decay == decay) elements += padded(p.shape.numel());
      if (elements == 0) continue;
      const Tensor flat = ctx.tensor({elements}, dtype, cls);
      (decay ? t.groups[static_cast<std::size_t>(g)].decayed : t.groups[static_cast<std::size_t>(g)].plain) = flat;
      std::int64_t at = 0;
      for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].group != g || params[i].decay != decay) continue;
        const std::int64_t n = params[i].shape.numel();
        t.tensors[i] = flat.slice(0, at, n).view(params[i].shape);
        at += padded(n);
      }
    }
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
