// flashgpt doctor: what this machine gives a training, line by line, and what to do where it falls short. Nothing is left behind: whether a
// folder can be written is tried with a folder that is removed at once.
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "attention/bench.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "core/cuda/api.h"
#include "core/cuda/compile.h"
#include "core/gemm.h"
#include "io/file.h"
#include "io/json.h"
#include "io/terminal.h"
#include "io/text.h"

namespace flashgpt::cli {
namespace {

namespace fs = std::filesystem;

enum class Health : std::uint8_t { kOk, kWarning, kError };
const char* name_of(Health h) { return h == Health::kOk ? "ok" : h == Health::kWarning ? "warning" : "error"; }

struct Finding {
  Health health = Health::kOk;
  std::string found;
  std::string advice;  // what to do; empty when all is well
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string line_of(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding processor() { return {.found = cat(attention::processor_name(), ", ", std::thread::hardware_concurrency(), " CPUs")}; }

Finding instruction_set() {
  const Isa isa = cpu_target(1).isa;
  Finding f{.found = name_of(isa)};
  if (const char* forced = std::getenv("FLASHGPT_ISA"); forced && *forced) {
    f.found += " (FLASHGPT_ISA)";
    unsetenv("FLASHGPT_ISA");
    if (const Isa widest = cpu_target(1).isa; widest > isa)
      f = {Health::kWarning, f.found, cat("unset FLASHGPT_ISA: the processor has ", name_of(widest))};
    setenv("FLASHGPT_ISA", forced, 1);
  } else if (isa == Isa::kPortable) {
    f = {Health::kWarning, f.found,
         "use a processor with AVX2 (most since 2013; virtual machines may hide it): this one is many times slower"};
  }
  return f;
}

Finding blas() {
  blas_self_test();
  Finding f{.found = cat(blas_description(), ", self-test passed")};
  const std::string text = blas_description();
  const bool slow = text.find("Prescott") != std::string::npos || text.find("generic") != std::string::npos ||
                    text.find("Core2") != std::string::npos || text.find("Nehalem") != std::string::npos;
  const bool half =
      __builtin_cpu_supports("avx512f") && (text.find("Haswell") != std::string::npos || text.find("Zen") != std::string::npos);
  if (const char* forced = std::getenv("OPENBLAS_CORETYPE"); (slow || half) && forced && *forced)
    f = {Health::kWarning, f.found, cat("unset OPENBLAS_CORETYPE (now ", forced, "): the processor has wider instructions")};
  else if (slow && __builtin_cpu_supports("avx2"))
    f = {Health::kWarning, f.found, "these kernels are several times slower than the processor: set OPENBLAS_CORETYPE=Haswell"};
  return f;
}

Finding threads() {
  cpu_set_t set;
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  Finding f{.found = cat(default_threads(), " threads by default; ", allowed, " CPUs allowed")};
  if (const std::string quota = line_of("/sys/fs/cgroup/cpu.max"); quota.empty())
    f.found += ", no quota known";
  else if (quota.starts_with("max"))
    f.found += ", no quota";
  else
    f.found += cat(", quota ", std::strtod(quota.c_str(), nullptr) / std::max(1.0, std::strtod(quota.c_str() + quota.find(' '), nullptr)),
                   " CPUs");
  const double load = std::strtod(line_of("/proc/loadavg").c_str(), nullptr);
  f.found += cat(", load ", short_text(load, 2));
  if (!claim_cpus())
    f = {Health::kWarning, f.found, "another flashgpt process uses these CPUs: wait for it, or share them out with taskset and --threads"};
  else if (load > 0.5 * allowed && allowed > 0)
    f = {Health::kWarning, f.found, "other programs are busy: a step waits for its slowest thread, so give fewer --threads or end them"};
  return f;
}

Finding memory() {
  const std::int64_t all = cpu_target(1).memory_bytes, free = free_host_memory();
  Finding f{.found = cat(bytes_text(static_cast<std::uint64_t>(free)), " free of ", bytes_text(static_cast<std::uint64_t>(all)))};
  const std::string limit = line_of("/sys/fs/cgroup/memory.max");
  const double bytes = std::strtod(limit.c_str(), nullptr);
  if (bytes > 0) f.found += cat(", limit of the container ", bytes_text(static_cast<std::uint64_t>(bytes)));
  rlimit address{};
  if (getrlimit(RLIMIT_AS, &address) == 0 && address.rlim_cur != RLIM_INFINITY)
    f = {Health::kWarning, cat(f.found, ", address space limited to ", bytes_text(address.rlim_cur)),
         "ulimit -v unlimited: models are mapped, which takes address space and no memory"};
  if (free < (std::int64_t{1} << 30)) f = {Health::kWarning, f.found, "close other programs; flashgpt plan says what a training needs"};
  return f;
}

Finding huge_pages() {
  const std::string modes = line_of("/sys/kernel/mm/transparent_hugepage/enabled");
  if (modes.empty()) return {.found = "unknown"};
  const std::size_t open = modes.find('['), close = modes.find(']');
  Finding f{.found = open == std::string::npos ? modes : modes.substr(open + 1, close - open - 1)};
  if (f.found == "never")
    f = {Health::kWarning, f.found, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled: a few percent faster"};
  return f;
}

// Why nothing can be written at or below path; empty when something can.
std::string write_fault(fs::path path, fs::path& where) {
  path = fs::absolute(path).lexically_normal();
  while (!exists(path) && path != path.root_path()) path = path.parent_path();
  where = path.has_filename() ? path : path.parent_path();
  std::string probe = (path / ".flashgpt-doctor.XXXXXX").string();
  if (!mkdtemp(probe.data())) return std::generic_category().message(errno);
  rmdir(probe.c_str());
  return "";
}

Finding disk(const std::string& folder) {
  fs::path where;
  const std::string fault = write_fault(folder, where);
  if (!fault.empty()) return {Health::kError, cat(where.string(), ": ", fault), "give runs a folder of yours: --out DIR"};
  const std::uint64_t free = free_bytes(where);
  Finding f{.found = cat(bytes_text(free), " free in ", where.string())};
  struct statfs info {};
  constexpr long kTmpfs = 0x01021994;
  if (free < (std::uint64_t{2} << 30))
    f = {Health::kWarning, f.found,
         "make room, or write runs elsewhere (--out): a checkpoint takes 12 bytes a parameter with AdamW, and two are kept"};
  else if (statfs(where.c_str(), &info) == 0 && info.f_type == kTmpfs)
    f = {Health::kWarning, cat(f.found, ", which is in memory"),
         "write runs to a disk (--out): these go at a restart, and take memory from the training"};
  return f;
}

// The file that an address of a shared library comes from.
template <class F> std::string library_of(F* function) {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(function), &info) && info.dli_fname ? info.dli_fname : "?";
}

Finding gpu() {
  try {
    const cuda::Driver& d = cuda::driver();
    int version = 0, count = 0;
    cuda::check(d.cuDriverGetVersion(&version), "driver version");
    cuda::check(d.cuDeviceGetCount(&count), "counting GPUs");
    Finding f{.found = cat("driver for CUDA ", version / 1000, ".", version % 1000 / 10, " (", library_of(d.cuInit), "), ", count,
                           count == 1 ? " GPU" : " GPUs")};
    for (int i = 0; i < count; ++i) {
      char name[256] = "?";
      std::size_t bytes = 0;
      int device = 0;
      if (d.cuDeviceGet(&device, i) == 0) {
        d.cuDeviceGetName(name, sizeof name - 1, device);
        d.cuDeviceTotalMem_v2(&bytes, device);
      }
      f.found +=
          cat("; ", name, ", ", bytes_text(bytes), ", capability ", cuda::capability(device) / 10, ".", cuda::capability(device) % 10);
    }
    if (count == 0)
      f = {Health::kWarning, f.found, "the driver sees no GPU: nvidia-smi says why; in a container, start it with the GPUs (--gpus all)"};
    return f;
  } catch (const Error& e) {
    const bool absent = std::string(e.what()).find("is not there") != std::string::npos;
    if (absent && !exists("/dev/nvidiactl")) return {.found = "none: training runs on the CPU"};
    return {Health::kWarning, first_line(e.what()),
            "the machine has a GPU, but no driver that works: install NVIDIA's driver package of your distribution"};
  }
}

Finding nvrtc(bool gpu_there) {
  const cuda::Nvrtc* n = nullptr;
  try {
    n = &cuda::nvrtc();
  } catch (const Error&) {
    const std::string how = "pip install nvidia-cuda-nvrtc, or name the folder of libnvrtc.so in FLASHGPT_CUDA_LIB";
    if (!gpu_there) return {.found = "none: only GPUs need it (" + how + ")"};
    return {Health::kWarning, "none: the GPU's kernels cannot be compiled", how};
  }
  Finding f{.found = cat(cuda::nvrtc_version(), " (", library_of(n->nvrtcVersion), ")")};
  // A copy without its builtins opens and reports a version, but compiles nothing.
  nvrtcProgram program = nullptr;
  constexpr const char* kSource = "extern \"C\" __global__ void probe(float* x) { x[threadIdx.x] = expf(x[threadIdx.x]); }";
  const char* options[] = {"--gpu-architecture=sm_90a"};
  cuda::Result result = n->nvrtcCreateProgram(&program, kSource, "probe.cu", 0, nullptr, nullptr);
  if (result == 0) result = n->nvrtcCompileProgram(program, 1, options);
  if (program) n->nvrtcDestroyProgram(&program);
  if (result != 0)
    return {gpu_there ? Health::kError : Health::kWarning, cat(f.found, ", but it compiles nothing: ", n->nvrtcGetErrorString(result)),
            "install it whole, with libnvrtc-builtins beside it: pip install nvidia-cuda-nvrtc"};
  f.found += ", compiles";
  return f;
}

Finding cache() {
  const std::string folder = cuda::cache_folder();
  const std::string advice = "set FLASHGPT_CACHE to a folder of yours, or every start compiles the GPU kernels anew";
  if (folder.empty()) return {Health::kWarning, "none: HOME is not set", advice};
  fs::path where;
  const std::string fault = write_fault(folder, where);
  if (!fault.empty()) return {Health::kWarning, cat(folder, " cannot be written: ", fault), advice};
  return {.found = folder + " can be written"};
}

}  // namespace

int doctor(const std::vector<std::string>& args) {
  bool json = false;
  OptionTable table;
  table.add({.key = "json", .field = &json, .help = "one line of JSON instead of text"});
  const Arguments arguments = table.split(args);
  if (show_help(
          arguments,
          "usage: flashgpt doctor [RUNS]\n\nWhat this machine gives a training, and what to do where it falls short. RUNS: the folder "
          "where runs are written [.].\nExit code 0: it can train, maybe with warnings; 4: it cannot.",
          table))
    return 0;
  table.apply(arguments);
  limit_positionals(arguments, "doctor", 1);

  bool gpu_there = false;
  const std::pair<const char*, std::function<Finding()>> checks[] = {
      {"processor", processor},
      {"isa", instruction_set},
      {"blas", blas},
      {"threads", threads},
      {"memory", memory},
      {"huge_pages", huge_pages},
      {"disk", [&] { return disk(arguments.positionals.empty() ? "." : arguments.positionals[0]); }},
      {"gpu",
       [&] {
         Finding f = gpu();
         gpu_there = cuda::driver_available();
         return f;
       }},
      {"nvrtc", [&] { return nvrtc(gpu_there); }},
      {"cache", cache},
  };
  Health worst = Health::kOk;
  OrderedJson lines = OrderedJson::array();
  for (const auto& [name, check] : checks) {
    Finding f;
    try {
      f = check();
    } catch (const std::exception& e) {
      f = {Health::kError, first_line(e.what()), "mend what the message says"};
    }
    worst = std::max(worst, f.health);
    if (json) {
      lines.push_back({{"name", name}, {"status", name_of(f.health)}, {"found", f.found}, {"advice", f.advice}});
      continue;
    }
    const Style style = f.health == Health::kOk ? Style::kGreen : f.health == Health::kWarning ? Style::kYellow : Style::kRed;
    std::string status = name_of(f.health);
    status.resize(8, ' ');
    std::printf("%s %-11s %s\n", styled(status, style, wants_color(1)).c_str(), name, f.found.c_str());
    if (!f.advice.empty()) std::printf("%21s-> %s\n", "", f.advice.c_str());
  }
  if (json) std::printf("%s\n", compact_json(OrderedJson{{"status", name_of(worst)}, {"checks", lines}}).c_str());
  return worst == Health::kError ? static_cast<int>(ErrorCode::kDevice) : 0;
}

}  // namespace flashgpt::cli
