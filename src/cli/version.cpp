// flashgpt version
#include <cstdio>
#include <nlohmann/json.hpp>

#include "attention/bench.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "core/cuda/api.h"
#include "core/gemm.h"
#include "flashgpt/error.h"
#include "io/json.h"

namespace flashgpt::cli {

namespace {

std::string nvrtc() {
  try {
    return cuda::nvrtc_version();
  } catch (const Error&) {
    return "none";
  }
}

}  // namespace

int version(const std::vector<std::string>& args) {
  bool json = false;
  OptionTable table;
  table.add({.key = "json", .field = &json, .help = "as one line of JSON"});
  const Arguments arguments = table.split(args);
  if (show_help(arguments, "usage: flashgpt version [--json]", table)) return 0;
  limit_positionals(arguments, "version", 0);
  table.apply(arguments);
  const Target target = cpu_target(default_threads());
  const OrderedJson facts = {{"flashgpt", FLASHGPT_VERSION},
                             {"backend", "cpu"},
                             {"processor", attention::processor_name()},
                             {"isa", name_of(target.isa)},
                             {"threads", target.threads},
                             {"blas", blas_description()},
                             {"nvrtc", nvrtc()},
                             {"cuda_driver", cuda::driver_available() ? "found (not used by this version's training)" : "none"}};
  if (json)
    std::printf("%s\n", compact_json(facts).c_str());
  else
    for (const auto& [key, value] : facts.items())
      std::printf("%-12s %s\n", key.c_str(), value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  return 0;
}

}  // namespace flashgpt::cli
