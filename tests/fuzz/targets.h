// What the fuzzer calls, one function a reader: any bytes must end in success or an Error, and whatever was read must hold what the
// reader promises. A broken promise aborts. tests/fuzz/CMakeLists.txt says how they are built, `./dev fuzz` runs them; the quick tests call
// the same functions on the findings so far (tests/fuzz/cases).
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "flashgpt/error.h"

namespace flashgpt::fuzz {

void safetensors(std::string_view bytes);
void tokenizer(std::string_view bytes);
void yaml(std::string_view bytes);
void shard(std::string_view bytes);
void checkpoint(std::string_view bytes);
void attention(std::string_view bytes);

struct Target {
  const char* name;
  void (*run)(std::string_view);
};

inline void promise(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// Runs a reader; an Error is an answer like any other, every other exception ends the program.
template <class F> void expect_answer(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    promise(e.what()[0] != '\0', "an Error says something");
  }
}

// A folder in memory for files of this process, removed at the end.
class Folder {
 public:
  Folder() : path_(std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path().string()) {
    path_ /= "flashgpt-fuzz-" + std::to_string(::getpid());
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  // Writes PATH/NAME, in a way that is fast and not safe.
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::FILE* out = std::fopen(file.c_str(), "wb");
    promise(out && std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size() && std::fclose(out) == 0,
            "the fuzzer can write its file");
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace flashgpt::fuzz
