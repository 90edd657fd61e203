#include "io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "flashgpt/error.h"
#include "io/file.h"

namespace flashgpt {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  make_directories(folder);
  const std::string path = (folder / ".lock").string();
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require(fd_ >= 0, "cannot open ", path, ": ", std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char owner[32] = {};
    const ssize_t got = ::read(fd_, owner, sizeof owner - 1);
    ::close(fd_);
    if (error == EWOULDBLOCK)
      fail(folder.string(), " is in use by ",
           got > 0 ? cat("process ", std::string(owner, static_cast<std::size_t>(got))) : "another process",
           "; wait for it, or take another folder");
    fail("cannot lock ", path, ": ", std::strerror(error));
  }
  const std::string id = std::to_string(::getpid());
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, id.data(), id.size(), 0) < 0) {
    // The lock holds all the same; only the message of the next comer is poorer (a full disk).
  }
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace flashgpt
