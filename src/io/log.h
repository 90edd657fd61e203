// A log of JSON lines: one object a line, so that a kill costs at most the line being written and the file can be followed while it grows.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace flashgpt {

class JsonLines {
 public:
  // Appends; the file is made when it is not there. A last line without its end, left by a kill, is cut off.
  explicit JsonLines(const std::filesystem::path& path);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // One object as text without a newline (compact_json). The line is with the system when this returns, whole; on an Error (a full disk)
  // nothing of it stays in the file and the next write may be tried.
  void write(std::string_view object);

 private:
  std::filesystem::path path_;
  std::string line_;
  int fd_ = -1;
};

}  // namespace flashgpt
