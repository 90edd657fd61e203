#include "io/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

[[noreturn]] void fail_with(const char* action, const std::filesystem::path& path, int error) {
  fail("cannot ", action, " ", path.string(), ": ", std::strerror(error));
}

// The end of the last whole line, read from the back.
off_t end_of_lines(int fd, off_t size) {
  char block[4096];
  for (off_t end = size; end > 0;) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof block));
    const ssize_t n = ::pread(fd, block, static_cast<std::size_t>(end - begin), begin);
    if (n != end - begin) return size;  // unreadable: leave it as it is
    for (off_t i = n; i > 0; --i)
      if (block[i - 1] == '\n') return begin + i;
    end = begin;
  }
  return 0;
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& path) : path_(path) {
  do fd_ = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) fail_with("open", path_, errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return;
  const off_t end = end_of_lines(fd_, info.st_size);
  if (end < info.st_size && ::ftruncate(fd_, end) != 0) {
    const int error = errno;
    ::close(fd_);
    fail_with("cut the torn last line of", path_, error);
  }
}

JsonLines::~JsonLines() {
  if (fd_ >= 0) ::close(fd_);
}

void JsonLines::write(std::string_view object) {
  require(object.find('\n') == std::string_view::npos, "a line of ", path_.string(), " that holds a line break");
  line_.assign(object);
  line_ += '\n';
  std::size_t done = 0;
  while (done < line_.size()) {
    const ssize_t n = ::write(fd_, line_.data() + done, line_.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    // Take back the part that found room, or the next line would be joined to it.
    struct stat info {};
    if (done > 0 && ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) && ::ftruncate(fd_, info.st_size - static_cast<off_t>(done)) != 0)
      fail_with("cut the torn last line of", path_, errno);
    fail_with("write", path_, error);
  }
}

}  // namespace flashgpt
