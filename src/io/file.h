// Files: read whole or mapped, written so that a kill or a full disk leaves either the old file or the new one, never a part.
// Every failure is an Error(kInvalid) with the path and the system's message.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashgpt {

// The bytes of a file, or of anything that can be read to its end.
std::string read_file(const std::filesystem::path& path);

// AtomicFile in one call.
void write_atomic(const std::filesystem::path& path, std::string_view bytes);

// A file in the making, under a temporary name beside its own: ".NAME.tmp.PID.N". commit() syncs it, renames it and syncs the folder;
// without a commit the destructor removes it (a kill leaves the temporary file, which nothing reads). A symbolic link is followed, so
// that its target is replaced. What exists and is no regular file (a device, a folder) is an error.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  void commit();
  std::uint64_t size() const { return size_; }  // bytes written so far

 private:
  void flush();

  std::filesystem::path path_, temporary_;
  std::vector<char> buffer_;
  std::uint64_t size_ = 0;
  int fd_ = -1;
};

// A regular file, read-only in memory. Pages are read when they are touched; a file that another process cuts short meanwhile ends this
// one with SIGBUS, so only files that are replaced whole should be mapped.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

void make_directories(const std::filesystem::path& path);  // with its parents; there already: nothing
// PATH/NAME of everything in a folder, without "." and "..", in byte order of the names.
std::vector<std::filesystem::path> list_directory(const std::filesystem::path& path);
// Objects, so that a call with a path does not also find (or silently mean) the functions of std::filesystem of these names.
struct Exists {
  bool operator()(const std::filesystem::path& path) const;  // a link to nothing does not
};
struct FileSize {
  std::uint64_t operator()(const std::filesystem::path& path) const;
};
inline constexpr Exists exists;
inline constexpr FileSize file_size;
std::uint64_t free_bytes(const std::filesystem::path& path);  // that this user may still write on the disk that holds path
void fsync_directory(const std::filesystem::path& path);
// rename(2), which replaces a file or an empty folder, then a sync of the folders.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);  // a file, or a folder with all that is in it; not there: nothing

// XXH64 (Yann Collet; faster than a disk). Guards against damage, not against forgery. Parts may be cut anywhere.
class Checksum64 {
 public:
  explicit Checksum64(std::uint64_t seed = 0);
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  std::uint64_t lanes_[4];
  std::uint64_t seed_, total_ = 0;
  std::byte rest_[32];  // the last total_ % 32 bytes
};

// Of one piece. To chain, pass the checksum of what came before as the seed (not the checksum of the pieces joined: Checksum64 is).
std::uint64_t checksum64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t checksum64(std::string_view bytes, std::uint64_t seed = 0);

}  // namespace flashgpt
