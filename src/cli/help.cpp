#include "cli/help.h"

#include <cstdio>
#include <utility>

#include "cli/command.h"

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

std::vector<CommandHelp> help_of_commands() {
  std::vector<CommandHelp> out;
  for (const Command& c : commands()) {
    std::vector<std::string> actions = c.actions;
    if (actions.empty()) actions.emplace_back();
    for (const std::string& action : actions) {
      const CollectHelp collect([&](const std::string& usage, const OptionTable& table) {
        out.push_back({.command = c.name, .action = action, .summary = c.summary, .usage = usage, .options = table.texts()});
      });
      std::vector<std::string> args;
      if (!action.empty()) args.push_back(action);
      args.emplace_back("--help");
      c.run(args);
    }
  }
  return out;
}

}  // namespace flashgpt::cli
