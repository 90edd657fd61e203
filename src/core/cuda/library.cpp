// The search for vendor libraries. PyTorch installs NVRTC, cuBLAS and NCCL inside the Python environment, so that is searched before the
// toolkit: a process that already holds PyTorch's copy then shares it.
#include "core/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "flashgpt/error.h"

namespace flashgpt::cuda {
namespace fs = std::filesystem;

namespace {

void add(std::vector<std::string>& places, const fs::path& p) {
  std::error_code ec;
  if (fs::is_directory(p, ec)) places.push_back(p.string());
}

// site-packages folders of the environment in use: VIRTUAL_ENV, CONDA_PREFIX, and those on PYTHONPATH.
std::vector<fs::path> site_packages() {
  std::vector<fs::path> found;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* root = std::getenv(name);
    if (!root) continue;
    std::error_code ec;
    for (const auto& e : fs::directory_iterator(fs::path(root) / "lib", ec))
      if (e.path().filename().string().rfind("python", 0) == 0) found.push_back(e.path() / "site-packages");
  }
  if (const char* path = std::getenv("PYTHONPATH")) {
    std::string rest = path;
    while (!rest.empty()) {
      const auto colon = rest.find(':');
      found.emplace_back(rest.substr(0, colon));
      rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    }
  }
  return found;
}

std::vector<std::string> places(const LibraryQuestion& q) {
  std::vector<std::string> out;
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec).parent_path();
  if (!self.empty()) {
    add(out, self);
    add(out, self / "../lib");
  }
  if (const char* p = std::getenv("FLASHGPT_CUDA_LIB")) add(out, p);
  if (q.python_folder)
    for (const fs::path& site : site_packages()) add(out, site / "nvidia" / q.python_folder);
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* p = std::getenv(name)) {
      add(out, fs::path(p) / "lib64");
      add(out, fs::path(p) / "lib");
    }
  add(out, "/usr/local/cuda/lib64");
  add(out, "/usr/local/cuda/lib");
  return out;
}

}  // namespace

void* open_library(const LibraryQuestion& q) {
  for (const std::string& name : q.sonames)  // a copy that this process already holds
    if (void* h = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return h;
  const std::vector<std::string> where = places(q);
  std::string tried;
  for (const std::string& folder : where)
    for (const std::string& name : q.sonames) {
      const std::string path = folder + "/" + name;
      std::error_code ec;
      if (!fs::exists(path, ec)) continue;
      if (void* h = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return h;
      tried += cat("\n  ", dlerror());
    }
  for (const std::string& name : q.sonames)
    if (void* h = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return h;
  std::string names, folders;
  for (const std::string& n : q.sonames) names += cat(names.empty() ? "" : ", ", n);
  for (const std::string& f : where) folders += cat("\n  ", f);
  throw Error(ErrorCode::kDevice, cat(q.what, " is not there: looked for ", names, " in", folders, "\n  and on the loader's path", tried,
                                      "\nInstall: ", q.install, "; or name its folder in FLASHGPT_CUDA_LIB."));
}

void* symbol(void* library, const char* name, const char* what) {
  void* p = dlsym(library, name);
  if (!p) throw Error(ErrorCode::kDevice, cat(what, " has no function ", name, ": it is older than the one this program needs"));
  return p;
}

}  // namespace flashgpt::cuda
