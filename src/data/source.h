// The bytes of a file as they read: plain, gzip (RFC 1952, members one after the other) or zstd (RFC 8878, frames one after the other),
// told apart by their first bytes, not by the name. They come as a stream, so memory is bounded: 256 KiB here, 32 KiB of history for gzip,
// for zstd what the file asks for up to 128 MiB (as `zstd --long` makes at most).
//
// A compressed file that is damaged, cut short, or a bomb ends with a fault; no fault can grow memory or end the program.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace flashgpt {

class ByteSource {
 public:
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;

  explicit operator bool() const { return file_ != nullptr; }  // false: cannot be opened, errno says why
  // Fills the buffer; fewer bytes only at the end or before a fault. An Error when the disk cannot be read.
  std::size_t read(char* to, std::size_t bytes);
  // Why the bytes end here when it is not their end: "gzip that is cut short", "damaged zstd", ...; else empty.
  const std::string& fault() const { return fault_; }
  bool compressed() const { return compressed_; }

  static constexpr std::int64_t kBombBytes = std::int64_t{64} << 20;  // a bomb: more than this,
  static constexpr std::int64_t kBombRatio = 400;                     // and so many times the file (text reaches 30, logs 100)

 private:
  struct Decoder;
  struct GzipDecoder;
  struct ZstdDecoder;
  struct CloseFile {
    void operator()(void* file) const;
  };
  std::size_t refill();  // compressed bytes that wait

  std::string path_;
  std::unique_ptr<void, CloseFile> file_;  // FILE
  std::unique_ptr<Decoder> decoder_;       // none: plain
  std::string in_;                         // bytes read ahead
  std::size_t at_ = 0;                     // of them, used
  std::int64_t read_ = 0, made_ = 0;
  std::string fault_;
  bool compressed_ = false, ended_ = false;
  bool whole_ = false;  // no member or frame is open
};

// The name without .gz, .zst and their like: what tells the kind of text inside.
std::string_view without_compression(std::string_view name);

}  // namespace flashgpt
