// Text to train on when the user names none: what the machine has. Nothing is downloaded; `apt install` of any of the packages adds to it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.h"

namespace flashgpt {

struct Corpus {
  std::string name;         // "linux-source"
  std::string description;  // "source and documentation of the Linux kernel"
  std::vector<std::string> paths;
  FileFilter filter;
  std::int64_t files = 0, bytes = 0;
};

// All corpora with at least min_bytes of text on this machine, the best first; the last resort is the headers of C and C++ and Python's
// standard library. root: where the file system is looked for.
std::vector<Corpus> installed_corpora(const std::string& root = "", std::int64_t min_bytes = 1000000);

// The first of them. An Error says what to install, or how to name text of one's own.
Corpus default_corpus(const std::string& root = "", std::int64_t min_bytes = 1000000);

}  // namespace flashgpt
