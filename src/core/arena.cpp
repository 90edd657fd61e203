#include "core/arena.h"

#include <algorithm>

namespace flashgpt {
namespace {

// A recording's addresses: never null, never readable.
std::byte* const kFakeBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 46);

std::size_t sum(const std::array<std::size_t, kMemClasses>& a) {
  std::size_t s = 0;
  for (std::size_t x : a) s += x;
  return s;
}

}  // namespace

const char* name_of(MemClass c) {
  switch (c) {
    case MemClass::kWeights: return "weights";
    case MemClass::kGradients: return "gradients";
    case MemClass::kOptimizer: return "optimizer";
    case MemClass::kActivations: return "activations";
    case MemClass::kWorkspace: return "workspace";
    case MemClass::kInputs: return "inputs";
  }
  return "?";
}

std::size_t MemoryPlan::total_bytes() const { return sum(by_class()); }

std::array<std::size_t, kMemClasses> MemoryPlan::by_class() const {
  const Section* largest = nullptr;
  for (const Section& s : sections)
    if (!largest || s.peak > largest->peak) largest = &s;
  return largest ? largest->at_peak : std::array<std::size_t, kMemClasses>{};
}

Arena::Arena(Device device) : base_(kFakeBase), device_(device) { plan_.sections.push_back({.name = "setup"}); }

Arena::Arena(MemoryPlan plan, void* base, Device device)
    : plan_(std::move(plan)), recording_(false), base_(static_cast<std::byte*>(base)), device_(device) {
  require(base || plan_.total_bytes() == 0, "arena of ", plan_.total_bytes(), " bytes without memory");
}

void Arena::begin(std::string_view name) {
  if (section_ == 0) setup_end_ = mark_;
  mark_ = setup_end_;
  next_ = 0;
  auto& sections = plan_.sections;
  const auto found = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == name; });
  section_ = static_cast<int>(found - sections.begin());
  replaying_ = found != sections.end();
  if (replaying_) return;
  require(recording_, "arena section '", name, "' was not recorded");
  sections.push_back({.name = std::string(name), .peak = mark_.top, .at_peak = mark_.live});
}

void* Arena::bytes(std::size_t n, MemClass cls) {
  if (n == 0) return nullptr;
  const std::size_t size = (n + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  Section& s = plan_.sections[static_cast<std::size_t>(section_)];
  const Request want{.offset = mark_.top, .bytes = size, .cls = cls};
  mark_.top += size;
  mark_.live[static_cast<std::size_t>(cls)] += size;
  if (recording_ && !replaying_) {
    s.requests.push_back(want);
    if (mark_.top > s.peak) {
      s.peak = mark_.top;
      s.at_peak = mark_.live;
    }
  } else {
    require(next_ < s.requests.size(), "arena section '", s.name, "': request ", next_, " of ", n, " bytes, the plan has only ",
            s.requests.size());
    const Request& planned = s.requests[next_];
    require(planned.offset == want.offset && planned.bytes == want.bytes && planned.cls == want.cls, "arena section '", s.name,
            "': request ", next_, " is ", want.bytes, " bytes of ", name_of(cls), " at ", want.offset, ", planned were ", planned.bytes,
            " bytes of ", name_of(planned.cls), " at ", planned.offset);
  }
  ++next_;
  return base_ + want.offset;
}

Tensor Arena::tensor(Shape shape, Dtype dtype, MemClass cls) {
  for (int i = 0; i < shape.rank; ++i) require(shape.dims[i] >= 0, "tensor of shape ", shape.str(), ", expected no negative dimension");
  // A tensor of no elements still has an address: it is wanted, only empty.
  const std::size_t n = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return Tensor(bytes(std::max<std::size_t>(n, 1), cls), shape, dtype, device_);
}

}  // namespace flashgpt
