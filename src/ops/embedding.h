// y[n] = table[tokens[n]] (+ position_table[positions[n]]).
#pragma once
#include "core/run.h"

namespace flashgpt {

struct Embedding {
  Tensor y;               // out [N, C]
  Tensor tokens;          // in int32 [N], each in [0, V)
  Tensor table;           // in [V, C]
  Tensor positions;       // in int32 [N], each in [0, P); with position_table
  Tensor position_table;  // in [P, C] or absent

  static constexpr const char* kName = "embedding";
  template <class V> void fields(V& v) const {
    v.out("y", y);
    v.in("tokens", tokens);
    v.in("table", table);
    v.in("positions", positions);
    v.in("position_table", position_table);
  }
};

// Rows are summed in the order of n, whatever the number of threads.
struct EmbeddingGrad {
  Tensor dtable;           // inout [V, C], accumulates
  Tensor dposition_table;  // inout [P, C], accumulates; or absent
  Tensor dy;               // in [N, C]
  Tensor tokens, positions;

  static constexpr const char* kName = "embedding_grad";
  template <class V> void fields(V& v) const {
    v.inout("dtable", dtable);
    v.inout("dposition_table", dposition_table);
    v.in("dy", dy);
    v.in("tokens", tokens);
    v.in("positions", positions);
  }
};

void check(const Embedding& op);
void check(const EmbeddingGrad& op);
std::size_t scratch_bytes(const Target& target, const EmbeddingGrad& op);
void launch(CpuStream s, const Embedding& op, Scratch scratch);
void launch(CpuStream s, const EmbeddingGrad& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const EmbeddingGrad& op);
void launch(CudaStream s, const Embedding& op, Scratch scratch);
void launch(CudaStream s, const EmbeddingGrad& op, Scratch scratch);

}  // namespace flashgpt
