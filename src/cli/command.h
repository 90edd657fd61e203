// The commands of the program. Each has a file of its own; main.cpp has the table.
#pragma once
#include <string>
#include <vector>

namespace flashgpt::cli {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);  // arguments behind the name; returns the exit code
  std::vector<std::string> actions = {};             // words that must come first: "prepare" of data
};

const std::vector<Command>& commands();

int data(const std::vector<std::string>& args);
int train(const std::vector<std::string>& args);
int generate(const std::vector<std::string>& args);
int eval(const std::vector<std::string>& args);
int plan(const std::vector<std::string>& args);
int bench(const std::vector<std::string>& args);
int report(const std::vector<std::string>& args);
int doctor(const std::vector<std::string>& args);
int completion(const std::vector<std::string>& args);
int man(const std::vector<std::string>& args);
int version(const std::vector<std::string>& args);

}  // namespace flashgpt::cli
