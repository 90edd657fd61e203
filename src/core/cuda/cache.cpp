// Compiled kernels on the disk, one file each, named by its fingerprint:
//   "flashgpt kernel 1\n"  fingerprint 32 bytes  checksum u64  registers, spill, stack i32  three lengths u64 (entry, log, cubin)  the
//   three.
// The checksum covers what follows it, so a truncated or foreign file is seen and compiled over.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/cuda/compile.h"
#include "flashgpt/error.h"

namespace flashgpt::cuda {
namespace fs = std::filesystem;

namespace {

constexpr char kMagic[] = "flashgpt kernel 1\n";
constexpr std::size_t kHead = sizeof kMagic - 1 + 32 + 8;

std::uint64_t checksum(const char* p, std::size_t n) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (std::size_t i = 0; i < n; ++i) h = (h ^ static_cast<unsigned char>(p[i])) * 0x100000001b3ull;
  return h;
}

template <class T> void put(std::string& out, const T& v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }

std::string serialise(const std::string& key, const Compiled& c) {
  std::string body;
  for (const int v : {c.registers, c.spill_bytes, c.stack_bytes}) put(body, v);
  for (const std::uint64_t v : {c.entry.size(), c.log.size(), c.cubin.size()}) put(body, v);
  body += c.entry;
  body += c.log;
  body.append(c.cubin.begin(), c.cubin.end());
  std::string file = kMagic + key;
  put(file, checksum(body.data(), body.size()));
  return file + body;
}

bool parse(const std::string& key, const std::string& file, Compiled& c) {
  constexpr std::size_t kFixed = 3 * sizeof(int) + 3 * sizeof(std::uint64_t);
  if (file.size() < kHead + kFixed || file.compare(0, kHead - 8, kMagic + key) != 0) return false;
  std::uint64_t sum, n[3];
  std::memcpy(&sum, file.data() + kHead - 8, 8);
  const char* body = file.data() + kHead;
  const std::size_t size = file.size() - kHead;
  if (sum != checksum(body, size)) return false;
  int v[3];
  std::memcpy(v, body, sizeof v);
  std::memcpy(n, body + sizeof v, sizeof n);
  if (n[0] + n[1] + n[2] + kFixed != size) return false;
  const char* p = body + kFixed;
  c.registers = v[0], c.spill_bytes = v[1], c.stack_bytes = v[2];
  c.entry.assign(p, n[0]);
  c.log.assign(p + n[0], n[1]);
  c.cubin.assign(p + n[0] + n[1], p + size - kFixed);
  return true;
}

void write_whole(const fs::path& place, const std::string& text) {
  std::error_code ec;
  fs::create_directories(place.parent_path(), ec);
  std::string temporary = place.string() + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return;  // a cache that cannot be written is no error
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  const bool whole = done == text.size() && ::close(fd) == 0;
  if (whole) fs::rename(temporary, place, ec);
  if (!whole || ec) ::unlink(temporary.c_str());
}

}  // namespace

std::string cache_folder() {
  if (const char* p = std::getenv("FLASHGPT_CACHE")) return p;
  if (const char* p = std::getenv("XDG_CACHE_HOME"); p && *p) return std::string(p) + "/flashgpt";
  if (const char* p = std::getenv("HOME"); p && *p) return std::string(p) + "/.cache/flashgpt";
  return "";
}

Compiled compile_cached(const KernelKey& key) {
  const std::string folder = cache_folder();
  if (folder.empty()) return compile(key);
  const std::string name = fingerprint(key);
  const fs::path place = fs::path(folder) / "kernels" / (name + ".bin");
  Compiled c;
  if (std::ifstream f(place, std::ios::binary); f) {
    const std::string text((std::istreambuf_iterator<char>(f)), std::istreambuf_iterator<char>());
    if (parse(name, text, c)) return c;
  }
  c = compile(key);
  write_whole(place, serialise(name, c));
  return c;
}

}  // namespace flashgpt::cuda
