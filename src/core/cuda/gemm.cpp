// Matrix products on the GPU by cuBLASLt, opened with dlopen. It counts in columns: the row-major C = op(A) op(B) is its
// C^T = op(B)^T op(A)^T, with the same memory. The library's first choice is taken for each shape and remembered; none of the algorithms it
// offers sums with atomics, so a shape always gives the same bits.
#include "core/gemm.h"

#include <array>
#include <map>
#include <mutex>

#include "core/copy.h"
#include "core/cuda/api.h"
#include "core/cuda/library.h"

namespace flashgpt {
namespace {

using cuda::Result;
using Index = std::int64_t;

// The part of cublasLt.h that is used; handles are opaque pointers.
using Handle = void*;
using Description = void*;
using Layout = void*;
using Preference = void*;
struct Algorithm {
  std::uint64_t opaque[8];
};
struct Choice {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Choice) == 96);
constexpr int kCompute32 = 68, kReal32 = 0;                          // CUBLAS_COMPUTE_32F, CUDA_R_32F
constexpr int kDescTransA = 3, kDescTransB = 4, kPrefWorkspace = 1;  // attributes
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

struct Library {
  Result (*cublasLtCreate)(Handle*);
  Result (*cublasLtMatmulDescCreate)(Description*, int, int);
  Result (*cublasLtMatmulDescSetAttribute)(Description, int, const void*, std::size_t);
  Result (*cublasLtMatmulDescDestroy)(Description);
  Result (*cublasLtMatrixLayoutCreate)(Layout*, int, std::uint64_t, std::uint64_t, std::int64_t);
  Result (*cublasLtMatrixLayoutDestroy)(Layout);
  Result (*cublasLtMatmulPreferenceCreate)(Preference*);
  Result (*cublasLtMatmulPreferenceSetAttribute)(Preference, int, const void*, std::size_t);
  Result (*cublasLtMatmulPreferenceDestroy)(Preference);
  Result (*cublasLtMatmulAlgoGetHeuristic)(Handle, Description, Layout, Layout, Layout, Layout, Preference, int, Choice*, int*);
  Result (*cublasLtMatmul)(Handle, Description, const void*, const void*, Layout, const void*, Layout, const void*, const void*, Layout,
                           void*, Layout, const Algorithm*, void*, std::size_t, CUstream);
};

const Library& library() {
  static const Library table = [] {
    constexpr const char* kWhat = "cuBLASLt, NVIDIA's matrix products,";
    void* lib = cuda::open_library({kWhat, {"libcublasLt.so.13", "libcublasLt.so"}, "cu13/lib", "pip install nvidia-cublas"});
    Library l;
    const auto load = [lib](auto& f, const char* name) { f = reinterpret_cast<std::decay_t<decltype(f)>>(cuda::symbol(lib, name, kWhat)); };
    load(l.cublasLtCreate, "cublasLtCreate");
    load(l.cublasLtMatmulDescCreate, "cublasLtMatmulDescCreate");
    load(l.cublasLtMatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
    load(l.cublasLtMatmulDescDestroy, "cublasLtMatmulDescDestroy");
    load(l.cublasLtMatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
    load(l.cublasLtMatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
    load(l.cublasLtMatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
    load(l.cublasLtMatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
    load(l.cublasLtMatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    load(l.cublasLtMatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
    load(l.cublasLtMatmul, "cublasLtMatmul");
    return l;
  }();
  return table;
}

void check_blas(Result r, const char* what) {
  if (r) throw Error(ErrorCode::kDevice, cat("cuBLASLt: ", what, " returned status ", r));
}

// What decides the algorithm. Leading dimensions and the alignment of addresses among it.
using ProductKey = std::array<Index, 8>;

struct Product {  // a description ready to run; kept for ever, there are a few dozen in a run
  Description description = nullptr;
  Layout a = nullptr, b = nullptr, c = nullptr;
  Algorithm algorithm;
};

struct Products {
  std::mutex mutex;
  std::map<CUcontext, Handle> handles;
  std::map<std::pair<CUcontext, ProductKey>, Product> products;
};
Products& products() {
  static Products* p = new Products;  // never destroyed: the driver may be gone before static objects are
  return *p;
}

Index leading(const Tensor& t) { return std::max<Index>(t.dim(0) > 1 ? t.stride(0) : t.dim(1), 1); }
Index alignment(const Tensor& t) { return static_cast<Index>(reinterpret_cast<std::uintptr_t>(t.data) & 15); }

Product make_product(Handle handle, const Gemm& op) {
  const Library& l = library();
  Product p;
  check_blas(l.cublasLtMatmulDescCreate(&p.description, kCompute32, kReal32), "description");
  const int first = op.trans_b, second = op.trans_a;  // its A is our B
  check_blas(l.cublasLtMatmulDescSetAttribute(p.description, kDescTransA, &first, sizeof first), "transpose");
  check_blas(l.cublasLtMatmulDescSetAttribute(p.description, kDescTransB, &second, sizeof second), "transpose");
  const auto layout = [&](Layout& out, const Tensor& t) {
    check_blas(
        l.cublasLtMatrixLayoutCreate(&out, kReal32, static_cast<std::uint64_t>(t.dim(1)), static_cast<std::uint64_t>(t.dim(0)), leading(t)),
        "layout");
  };
  layout(p.a, op.b);
  layout(p.b, op.a);
  layout(p.c, op.c);
  Preference preference = nullptr;
  check_blas(l.cublasLtMatmulPreferenceCreate(&preference), "preference");
  check_blas(l.cublasLtMatmulPreferenceSetAttribute(preference, kPrefWorkspace, &kWorkspace, sizeof kWorkspace), "workspace");
  Index least = 16;  // bytes that all three addresses are multiples of
  for (const Tensor* t : {&op.a, &op.b, &op.c})
    while (alignment(*t) % least) least /= 2;
  const auto align = static_cast<std::uint32_t>(least);
  for (int attribute : {5, 6, 7, 8})  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES to _D_BYTES
    check_blas(l.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &align, sizeof align), "alignment");
  Choice choice{};
  int found = 0;
  const Result r = l.cublasLtMatmulAlgoGetHeuristic(handle, p.description, p.a, p.b, p.c, p.c, preference, 1, &choice, &found);
  l.cublasLtMatmulPreferenceDestroy(preference);
  if (r || found == 0)
    throw Error(ErrorCode::kDevice, cat("cuBLASLt has no algorithm for ", op.a.shape.str(), op.trans_a ? "^T" : "", " x ", op.b.shape.str(),
                                        op.trans_b ? "^T" : "", " (status ", r, ")"));
  p.algorithm = choice.algorithm;
  return p;
}

const Product& product(const Gemm& op, Handle& handle) {
  CUcontext context = nullptr;
  cuda::check(cuda::driver().cuCtxGetCurrent(&context), "current context");
  const ProductKey key = {op.c.dim(0),
                          op.c.dim(1),
                          op.trans_a ? op.a.dim(0) : op.a.dim(1),
                          leading(op.a),
                          leading(op.b),
                          leading(op.c),
                          op.trans_a * 2 + op.trans_b,
                          alignment(op.a) | alignment(op.b) | alignment(op.c)};
  Products& all = products();
  const std::lock_guard lock(all.mutex);
  Handle& h = all.handles[context];
  if (!h) check_blas(library().cublasLtCreate(&h), "start");
  handle = h;
  const auto it = all.products.find({context, key});
  return it != all.products.end() ? it->second : all.products.emplace(std::pair{context, key}, make_product(h, op)).first->second;
}

}  // namespace

std::size_t cuda_scratch_bytes(const Target&, const Gemm&) { return kWorkspace; }

void launch(CudaStream s, const Gemm& op, Scratch scratch) {
  if (op.c.numel() == 0) return;
  if (op.a.numel() == 0) {  // an inner size of 0
    for (Index row = 0; row < op.c.dim(0) && !op.accumulate; ++row) launch(s, Fill{.y = op.c.select(0, row)}, {});
    return;
  }
  Handle handle = nullptr;
  const Product& p = product(op, handle);
  const float beta = op.accumulate ? 1.0f : 0.0f;
  check_blas(library().cublasLtMatmul(handle, p.description, &op.alpha, op.b.data, p.a, op.a.data, p.b, &beta, op.c.data, p.c, op.c.data,
                                      p.c, &p.algorithm, scratch.data, scratch.bytes, s.stream),
             "product");
}

}  // namespace flashgpt
