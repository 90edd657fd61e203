// The durable write is the one of POSIX: write a new file, fsync it, rename it over the old one, fsync the folder that names it.
#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "flashgpt/error.h"

namespace flashgpt {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;
constexpr std::size_t kLargestWrite = 1 << 30;  // Linux takes a little under 2 GiB at once

[[noreturn]] void fail_with(const char* action, const fs::path& path, int error) {
  fail("cannot ", action, " ", path.string(), ": ", std::strerror(error));
}

void check_result(const std::error_code& error, const char* action, const fs::path& path) {
  if (error) fail_with(action, path, error.value());
}

constexpr int kMostLinks = 40;  // as the system's own limit

// Closes on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int open_file(const fs::path& path, int flags, const char* action) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_with(action, path, errno);
  return fd;
}

fs::path folder_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file{open_file(path, O_RDONLY, "open")};
  struct stat info {};
  std::string out;
  if (::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode)) out.reserve(static_cast<std::size_t>(info.st_size) + 1);
  std::size_t used = 0;
  for (;;) {
    // Room beyond the size that the system reports: it reports 0 for pipes and for files of /proc.
    if (out.size() == used) out.resize(std::max(out.capacity(), used + (std::size_t{1} << 16)));
    const ssize_t n = ::read(file.fd, out.data() + used, std::min(out.size() - used, kLargestWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with("read", path, errno);
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  out.resize(used);
  return out;
}

void write_atomic(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  static std::atomic<unsigned> counter{0};
  std::error_code error;
  for (int links = 0; fs::is_symlink(path_, error); ++links) {
    require(links < kMostLinks, "cannot write ", path.string(), ": ", std::strerror(ELOOP));
    path_ = folder_of(path_) / fs::read_symlink(path_, error);
    check_result(error, "follow the link", path);
  }
  const fs::file_status status = fs::status(path_, error);
  if (fs::exists(status)) require(fs::is_regular_file(status), "cannot write ", path.string(), ": it exists and is no regular file");
  require(path_.has_filename(), "cannot write ", path.string(), ": expected the name of a file");
  const std::string name = path_.filename().string();
  do {
    temporary_ = folder_of(path_) / cat(".", name, ".tmp.", ::getpid(), ".", counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && (errno == EINTR || errno == EEXIST));
  if (fd_ < 0) fail_with("create", path_, errno);
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

namespace {

void write_all(int fd, const char* data, std::size_t bytes, const fs::path& path) {
  while (bytes > 0) {
    const ssize_t n = ::write(fd, data, std::min(bytes, kLargestWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with("write", path, errno);
    data += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

}  // namespace

void AtomicFile::flush() {
  write_all(fd_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  require(fd_ >= 0, "write to ", path_.string(), " after its commit");
  size_ += bytes;
  const char* from = static_cast<const char*>(data);
  if (buffer_.size() + bytes > kBufferBytes) flush();
  if (bytes >= kBufferBytes)
    write_all(fd_, from, bytes, path_);
  else if (bytes > 0)
    buffer_.insert(buffer_.end(), from, from + bytes);
}

void AtomicFile::commit() {
  require(fd_ >= 0, "second commit of ", path_.string());
  flush();
  if (::fsync(fd_) != 0) fail_with("sync", path_, errno);
  // Some file systems (NFS, quotas) only tell at close that the data had no room.
  if (::close(std::exchange(fd_, -1)) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail_with("close", path_, error);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail_with("replace", path_, error);
  }
  fsync_directory(folder_of(path_));
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file{open_file(path, O_RDONLY, "open")};
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail_with("read", path, errno);
  require(S_ISREG(info.st_mode), "cannot read ", path.string(), ": it is no regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;  // an empty mapping is an error to the system
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) fail_with("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::path existing = path.lexically_normal();
  while (!existing.empty() && !fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  fs::create_directories(path, error);
  check_result(error, "create the folder", path);
  require(fs::is_directory(path, error), "cannot create the folder ", path.string(), ": a file has that name");
  // The new names last only when the folders that hold them are synced.
  for (fs::path made = path.lexically_normal(); made.has_relative_path() && made != existing; made = made.parent_path())
    fsync_directory(folder_of(made));
}

std::vector<fs::path> list_directory(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> out;
  fs::directory_iterator it(path, error);
  check_result(error, "list the folder", path);
  for (; it != fs::directory_iterator(); it.increment(error)) {
    check_result(error, "list the folder", path);
    out.push_back(it->path());
  }
  check_result(error, "list the folder", path);
  std::sort(out.begin(), out.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return out;
}

bool Exists::operator()(const fs::path& path) const {
  std::error_code error;
  return fs::exists(path, error);
}

std::uint64_t FileSize::operator()(const fs::path& path) const {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  check_result(error, "read the size of", path);
  return size;
}

std::uint64_t free_bytes(const fs::path& path) {
  struct statvfs info {};
  if (::statvfs(path.empty() ? "." : path.c_str(), &info) != 0) fail_with("read the free space of", path, errno);
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

void fsync_directory(const fs::path& path) {
  const Descriptor folder{open_file(path, O_RDONLY | O_DIRECTORY, "open the folder")};
  // EINVAL: a file system that cannot sync folders (some network ones).
  if (::fsync(folder.fd) != 0 && errno != EINVAL) fail_with("sync the folder", path, errno);
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("cannot rename ", from.string(), " to ", to.string(), ": ", std::strerror(errno));
  fsync_directory(folder_of(to));
  if (folder_of(from) != folder_of(to)) fsync_directory(folder_of(from));
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check_result(error, "remove", path);
}

}  // namespace flashgpt
