#include "cli/help.h"

#include <cstdio>
#include <utility>

namespace flashgpt::cli {
namespace {

HelpSink& current_sink() {
  static HelpSink sink;
  return sink;
}

}  // namespace

CollectHelp::CollectHelp(HelpSink sink) { current_sink() = std::move(sink); }
CollectHelp::~CollectHelp() { current_sink() = nullptr; }

bool show_help(const Arguments& arguments, const std::string& usage, const OptionTable& table) {
  if (!arguments.help) return false;
  if (current_sink())
    current_sink()(usage, table);
  else
    std::printf("%s\n\n%s", usage.c_str(), table.help().c_str());
  return true;
}

}  // namespace flashgpt::cli
