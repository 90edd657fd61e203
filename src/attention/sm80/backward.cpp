// The backward on 16-bit types: not there yet, so the table finds no row for it and says so.
#include "attention/cuda/implementations.h"

namespace flashgpt::attention::sm80 {

bool carries(int, const Backward&) { return false; }
std::size_t scratch_bytes(const Target&, const Backward&) { return 0; }
void launch(CudaStream, const Backward&, Scratch) { fail("attention_backward: 16-bit types are not implemented on a GPU"); }

}  // namespace flashgpt::attention::sm80
