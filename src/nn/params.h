// Parameters are data: one list of ParamSpec drives allocation, initialisation, optimizer groups, checkpoints, names and counts.
#pragma once
#include <string>
#include <vector>

#include "core/context.h"

namespace flashgpt {

enum class InitKind : std::uint8_t { kZeros, kOnes, kNormal };

struct Init {
  InitKind kind = InitKind::kZeros;
  float std = 0;
};

// Where a parameter, or rows of it, stands in a Hugging Face checkpoint.
struct HfTensor {
  std::string name;
  std::int64_t first_row = 0, rows = 0;  // rows of our tensor that this one holds; rows = 0: all
  bool transpose = false;                // GPT-2 keeps linear weights as [in, out]
};

struct ParamSpec {
  std::string name;  // "blocks.3.qkv.w"
  Shape shape;       // linear weights: [out, in]
  Init init;
  bool decay = false;  // weight decay: matrices yes, norms and biases no
  int group = 0;       // 0: outside the blocks; 1 + l: block l
  std::vector<HfTensor> hf;
};

using ParamList = std::vector<ParamSpec>;

std::int64_t count(const ParamList& params);

// One tensor for each spec: weights, gradients or an optimizer moment. A group lies in two flat ranges, decayed parameters and the others,
// so that an optimizer or a norm is one launch a range; parameters are padded to kParamAlignment elements, and the padding stays zero.
inline constexpr std::int64_t kParamAlignment = 64;

struct ParamTensors {
  struct Group {
    Tensor decayed, plain;  // fp32 [padded elements]; absent when there are none
  };
  std::vector<Tensor> tensors;  // in the order of the list
  std::vector<Group> groups;
};

ParamTensors allocate(Context& ctx, const ParamList& params, Dtype dtype, MemClass cls);
void fill_zero(Context& ctx, const ParamTensors& t);

// Random weights from (seed, index of the parameter, index of the element).
void initialise(Context& ctx, const ParamList& params, const ParamTensors& weights, std::uint64_t seed);

struct Linear {
  Tensor w, b;  // [out, in], [out] or absent
};
struct Norm {
  Tensor w, b;  // [C], [C] or absent
};

struct MhaParams {
  Linear qkv, out;
  Tensor q_norm, k_norm;  // [head_dim]: RMSNorm of each head; both or none
};

// The parameters of a block, or their gradients.
struct BlockParams {
  Norm norm1;
  MhaParams mha;
  Norm norm2;
  Linear up, down;
};

// Where a block finds its weights and leaves its gradients. In local memory both are references; offload and sharding are other
// implementations.
struct WeightSource {
  virtual ~WeightSource() = default;
  virtual const BlockParams& acquire(int block) = 0;  // complete when it returns, until release
  virtual void prefetch(int block) = 0;               // will be acquired soon
  virtual void release(int block) = 0;
};

struct GradSink {
  virtual ~GradSink() = default;
  virtual const BlockParams& acquire(int block) = 0;  // gradients to accumulate into
  virtual void done(int block) = 0;                   // nothing more is added by this backward
};

struct LocalWeights final : WeightSource {
  std::vector<BlockParams> blocks;
  const BlockParams& acquire(int block) override { return blocks[static_cast<std::size_t>(block)]; }
  void prefetch(int) override {}
  void release(int) override {}
};

struct LocalGrads final : GradSink {
  std::vector<BlockParams> blocks;
  const BlockParams& acquire(int block) override { return blocks[static_cast<std::size_t>(block)]; }
  void done(int) override {}
};

}  // namespace flashgpt
