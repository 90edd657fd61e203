// The text files that a user means: files, folders (searched in depth) and patterns such as 'books/*.txt', in a stable order.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace flashgpt {

// Which files of a folder are taken. A file that is named itself is always taken.
struct FileFilter {
  std::vector<std::string> suffixes;  // of the name, such as ".c"; empty: any
  std::vector<std::string> excludes;  // parts of the path below the folder, such as "/asic_reg/"
};

struct InputFile {
  std::string path;
  std::string name;  // below its folder: what splits and samples depend on, so that moving the folder changes nothing
  std::int64_t size = 0;
  bool named = false;  // by the user, not found in a folder or by a pattern
};

// Files that were left out, by reason, with one of them as an example.
struct Skipped {
  std::string reason;
  std::int64_t files = 0;
  std::string example;
};
void add_skipped(std::vector<Skipped>& all, const std::string& reason, const std::string& path);

struct FileList {
  std::vector<InputFile> files;
  std::vector<Skipped> skipped;
};

// Folders: hidden names, links and what is no regular file are left out; so is `without` (a folder; where the output goes). A file reached
// twice is taken once. An Error names a path that does not exist, a pattern that matches nothing, a named file that is not one.
FileList find_files(const std::vector<std::string>& inputs, const FileFilter& filter, const std::string& without = {});

}  // namespace flashgpt
