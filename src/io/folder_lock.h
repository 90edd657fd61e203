// One writer a folder: a lock that ends with the process, however it ends.
#pragma once
#include <filesystem>

namespace flashgpt {

// Holds FOLDER/.lock (flock) and writes the process id into it; makes the folder if need be. Error(kInvalid) that names the process when
// another holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace flashgpt
