// Opens a vendor's shared library by name, wherever it usually lies, and says so when it is not there.
#pragma once
#include <string>
#include <vector>

namespace flashgpt::cuda {

struct LibraryQuestion {
  const char* what;                  // "NVRTC"
  std::vector<std::string> sonames;  // best first
  const char* python_folder;         // below site-packages/nvidia: "cu13/lib"; null: not there
  const char* install;               // the command that brings it
};

// The handle of dlopen. Looks beside the program ($ORIGIN, $ORIGIN/../lib), in FLASHGPT_CUDA_LIB, in the Python site-packages in use, in
// CUDA_HOME, in /usr/local/cuda, then on the loader's path.
void* open_library(const LibraryQuestion& q);
void* symbol(void* library, const char* name, const char* what);  // throws when absent

}  // namespace flashgpt::cuda
