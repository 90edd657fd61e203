// The compiler's side: which files a kernel needs, its options, the report that ptxas gives.
#include "core/cuda/compile.h"

#include <chrono>
#include <cstring>
#include <regex>
#include <set>

#include "core/cuda/api.h"
#include "core/cuda/sources.h"
#include "flashgpt/error.h"

namespace flashgpt::cuda {

namespace {

const DeviceSource& find_source(const std::string& name) {
  for (std::size_t i = 0; i < kDeviceSourceCount; ++i)
    if (name == kDeviceSources[i].name) return kDeviceSources[i];
  throw Error(ErrorCode::kFailure, cat("no device file ", name, " in this build"));
}

// `name` and all it includes, each once, in the order of first mention.
void collect(const std::string& name, std::set<std::string>& seen, std::vector<const DeviceSource*>& out) {
  if (!seen.insert(name).second) return;
  const DeviceSource& s = find_source(name);
  out.push_back(&s);
  static const char kInclude[] = "#include \"";
  for (const char* p = std::strstr(s.text, kInclude); p; p = std::strstr(p, kInclude)) {
    p += sizeof kInclude - 1;
    collect(std::string(p, std::strchr(p, '"')), seen, out);
  }
}

std::vector<const DeviceSource*> closure(const std::string& file) {
  std::set<std::string> seen;
  std::vector<const DeviceSource*> out;
  collect(file, seen, out);
  return out;
}

std::vector<std::string> all_options(const KernelKey& key) {
  std::vector<std::string> o = {"--gpu-architecture=" + key.arch, "-std=c++20", "--ptxas-options=-v", "-default-device"};
  o.insert(o.end(), key.options.begin(), key.options.end());
  return o;
}

struct Hash {  // two FNV-1a chains of 64 bits
  std::uint64_t a = 0xcbf29ce484222325ull, b = 0x9ae16a3b2f90404full;
  void add(const std::string& s) {
    for (const unsigned char c : s) step(c);
    step(0x100);
  }
  void step(unsigned c) {
    a = (a ^ c) * 0x100000001b3ull;
    b = (b ^ (c + 0x9e)) * 0x100000001b3ull;
    b ^= b >> 29;
  }
};

int number_before(const std::string& log, const char* words) {
  int sum = 0;
  const std::regex re(std::string("(\\d+) ") + words);
  for (auto it = std::sregex_iterator(log.begin(), log.end(), re); it != std::sregex_iterator(); ++it) sum += std::stoi((*it)[1]);
  return sum;
}

}  // namespace

std::string fingerprint(const KernelKey& key) {
  Hash h;
  for (const DeviceSource* s : closure(key.file)) {
    h.add(s->name);
    h.add(s->text);
  }
  h.add(key.expression);
  for (const std::string& o : all_options(key)) h.add(o);
  h.add(nvrtc_version());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(h.a), static_cast<unsigned long long>(h.b));
  return text;
}

std::string serialisation_notes(const std::string& log) {
  static const std::regex re("[^\n]*C75(07|08|1[0-9])[^\n]*");
  std::string out;
  for (auto it = std::sregex_iterator(log.begin(), log.end(), re); it != std::sregex_iterator(); ++it) out += it->str() + "\n";
  return out;
}

Compiled compile(const KernelKey& key) {
  const Nvrtc& n = nvrtc();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<const DeviceSource*> files = closure(key.file);
  std::vector<const char*> texts, names, options;
  for (const DeviceSource* s : files) {
    texts.push_back(s->text);
    names.push_back(s->name);
  }
  const std::vector<std::string> option_texts = all_options(key);
  for (const std::string& o : option_texts) options.push_back(o.c_str());
  const std::string program = cat("#include \"", key.file, "\"\n");

  struct Program {
    nvrtcProgram p = nullptr;
    ~Program() {
      if (p) nvrtc().nvrtcDestroyProgram(&p);
    }
  } program_;
  const auto must = [&](Result r, const char* what) {
    if (r) throw Error(ErrorCode::kFailure, cat("NVRTC, ", what, ": ", n.nvrtcGetErrorString(r), " for ", key.expression));
  };
  must(n.nvrtcCreateProgram(&program_.p, program.c_str(), "kernel.cu", static_cast<int>(files.size()), texts.data(), names.data()),
       "program");
  must(n.nvrtcAddNameExpression(program_.p, key.expression.c_str()), "name expression");
  const Result r = n.nvrtcCompileProgram(program_.p, static_cast<int>(options.size()), options.data());
  Compiled out;
  std::size_t size = 0;
  must(n.nvrtcGetProgramLogSize(program_.p, &size), "log");
  out.log.resize(size);
  must(n.nvrtcGetProgramLog(program_.p, out.log.data()), "log");
  while (!out.log.empty() && out.log.back() == '\0') out.log.pop_back();
  if (r) throw Error(ErrorCode::kFailure, cat("compiling ", key.expression, " for ", key.arch, " failed:\n", out.log));
  const char* entry = nullptr;
  must(n.nvrtcGetLoweredName(program_.p, key.expression.c_str(), &entry), "lowered name");
  out.entry = entry;
  must(n.nvrtcGetCUBINSize(program_.p, &size), "cubin");
  out.cubin.resize(size);
  must(n.nvrtcGetCUBIN(program_.p, out.cubin.data()), "cubin");
  out.registers = number_before(out.log, "registers");
  out.spill_bytes = number_before(out.log, "bytes spill stores") + number_before(out.log, "bytes spill loads");
  out.stack_bytes = number_before(out.log, "bytes stack frame");
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace flashgpt::cuda
