// The registry: one map from variant and context to the loaded function.
#include "core/cuda/kernels.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "core/cuda/call.h"
#include "flashgpt/error.h"

namespace flashgpt::cuda {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};
Registry& registry() {
  static Registry* r = new Registry;  // never destroyed: the driver may be gone before static objects are
  return *r;
}

std::string registry_key(CUcontext context, const KernelKey& key) {
  std::string s = cat(context, "|", key.arch, "|", key.file, "|", key.expression);
  for (const std::string& o : key.options) s += "|" + o;
  return s;
}

int attribute(CUfunction f, int which) {
  int v = 0;
  check(driver().cuFuncGetAttribute(&v, which, f), "kernel attribute");
  return v;
}

}  // namespace

const Kernel& kernel(const KernelKey& key) {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "current context");
  if (!context) throw Error(ErrorCode::kDevice, "no CUDA context is current on this thread");
  Registry& r = registry();
  const std::string name = registry_key(context, key);
  {
    const std::lock_guard lock(r.mutex);
    if (const auto it = r.kernels.find(name); it != r.kernels.end()) return *it->second;
  }
  const Compiled c = compile_cached(key);
  auto k = std::make_unique<Kernel>();
  CUmodule module = nullptr;
  check(driver().cuModuleLoadData(&module, c.cubin.data()), "loading a kernel");
  check(driver().cuModuleGetFunction(&k->function, module, c.entry.c_str()), "finding a kernel");
  k->registers = attribute(k->function, kFuncRegisters);
  k->local_bytes = attribute(k->function, kFuncLocalBytes);
  k->static_shared_bytes = attribute(k->function, kFuncSharedBytes);
  k->spill_bytes = c.spill_bytes;
  k->compile_seconds = c.seconds;
  int device = 0, most = 0;
  check(driver().cuCtxGetDevice(&device), "device");
  check(driver().cuDeviceGetAttribute(&most, kAttrSharedBytes, device), "shared memory");
  check(driver().cuFuncSetAttribute(k->function, kFuncMaxDynamicShared, most - k->static_shared_bytes), "shared memory");
  const std::lock_guard lock(r.mutex);
  return *r.kernels.try_emplace(name, std::move(k)).first->second;
}

void compile_all(const std::vector<KernelKey>& keys, int threads) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::string failure;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < keys.size();) try {
        compile_cached(keys[i]);
      } catch (const Error& e) {
        const std::lock_guard lock(mutex);
        failure = e.what();
      }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& t : pool) t.join();
  if (!failure.empty()) throw Error(ErrorCode::kFailure, failure);
}

void launch(const Kernel& k, const Launch& how, void** arguments) {
  LaunchAttribute programmatic{};
  programmatic.id = kLaunchAttrProgrammatic;
  programmatic.value.programmatic = 1;
  LaunchConfig c{
      how.grid, 1, 1, how.block, 1, 1, static_cast<unsigned>(how.shared_bytes), how.stream, &programmatic, how.overlap_previous ? 1u : 0u};
  check(driver().cuLaunchKernelEx(&c, k.function, arguments, nullptr), "kernel launch");
}

int multiprocessors() {
  int device = 0, n = 0;
  check(driver().cuCtxGetDevice(&device), "device");
  check(driver().cuDeviceGetAttribute(&n, kAttrMultiprocessors, device), "multiprocessors");
  return n;
}

std::string current_arch() {
  int device = 0;
  check(driver().cuCtxGetDevice(&device), "device");
  return arch_of(capability(device));
}

std::string arch_of(int capability) { return cat("sm_", capability, capability == 90 ? "a" : ""); }

}  // namespace flashgpt::cuda
