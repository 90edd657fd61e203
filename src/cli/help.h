// --help of a command, in one place, so that shell completion and the man page see every command's options through the same door.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "io/options.h"

namespace flashgpt::cli {

// Called with what a command's --help would print: the lines before the options, and the options.
using HelpSink = std::function<void(const std::string& usage, const OptionTable& table)>;

// When --help was given: prints both to standard output, or hands them to the sink that is set, and returns true. usage: one line or more,
// starting with "usage: ", no newline at the end.
bool show_help(const Arguments& arguments, const std::string& usage, const OptionTable& table);

// Sets the sink for as long as it lives. One at a time; of the thread that runs the command.
class CollectHelp {
 public:
  explicit CollectHelp(HelpSink sink);
  ~CollectHelp();
  CollectHelp(const CollectHelp&) = delete;
  CollectHelp& operator=(const CollectHelp&) = delete;
};

// A command, or an action of one, as people are told of it.
struct CommandHelp {
  std::string command, action;  // "data", "prepare"; action "" when the command has none
  std::string summary;          // of the command
  std::string usage;
  std::vector<OptionText> options;
};
// Of all commands that have options, from their --help.
std::vector<CommandHelp> help_of_commands();

}  // namespace flashgpt::cli
