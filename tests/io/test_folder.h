// A folder of its own for a test, removed at the end; and what an Error must say.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "flashgpt/error.h"

namespace flashgpt {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "flashgpt-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

template <class F> void expect_error(F&& f, const std::string& part, ErrorCode code = ErrorCode::kInvalid) {
  try {
    f();
    ADD_FAILURE() << "no error, expected one with \"" << part << "\"";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "\"" << error.what() << "\" lacks \"" << part << "\"";
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

}  // namespace flashgpt
