#include "data/source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "flashgpt/error.h"

namespace flashgpt {

namespace {

constexpr std::size_t kInput = std::size_t{256} << 10;
constexpr int kZstdWindowLog = 27;  // 128 MiB

enum class Step : std::uint8_t { kMore, kMemberEnds, kFault };

}  // namespace

// Both make bytes of `in` (moving its beginning on) into `out`. kMemberEnds: a member or frame is whole, another may follow.
struct ByteSource::Decoder {
  virtual ~Decoder() = default;
  virtual Step step(std::string_view& in, char*& out, std::size_t& room, std::string& fault) = 0;
  virtual const char* name() const = 0;
};

struct ByteSource::GzipDecoder : Decoder {
  GzipDecoder() { require(inflateInit2(&stream, 15 + 16) == Z_OK, "no memory for gzip"); }
  ~GzipDecoder() override { inflateEnd(&stream); }
  const char* name() const override { return "gzip"; }
  Step step(std::string_view& in, char*& out, std::size_t& room, std::string& fault) override {
    if (fresh) {  // between members: tapes and some tools fill up with zeros
      in.remove_prefix(std::min(in.find_first_not_of('\0'), in.size()));
      if (in.empty()) return Step::kMemberEnds;
      require(inflateReset(&stream) == Z_OK, "gzip cannot be set back");
      fresh = false;
    }
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream.avail_in = static_cast<uInt>(in.size());
    stream.next_out = reinterpret_cast<Bytef*>(out);
    stream.avail_out = static_cast<uInt>(std::min<std::size_t>(room, std::size_t{1} << 30));
    const uInt before = stream.avail_out;
    const int rc = inflate(&stream, Z_NO_FLUSH);
    in.remove_prefix(in.size() - stream.avail_in);
    const std::size_t made = before - stream.avail_out;
    out += made;
    room -= made;
    if (rc == Z_STREAM_END) {
      fresh = true;
      return Step::kMemberEnds;
    }
    if (rc == Z_OK || rc == Z_BUF_ERROR) return Step::kMore;
    fault = "damaged gzip";
    return Step::kFault;
  }
  z_stream stream{};
  bool fresh = false;
};

struct ByteSource::ZstdDecoder : Decoder {
  ZstdDecoder() : stream(ZSTD_createDStream()) {
    require(stream != nullptr, "no memory for zstd");
    ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, kZstdWindowLog);
  }
  ~ZstdDecoder() override { ZSTD_freeDStream(stream); }
  const char* name() const override { return "zstd"; }
  Step step(std::string_view& in, char*& out, std::size_t& room, std::string& fault) override {
    ZSTD_inBuffer input{.src = in.data(), .size = in.size(), .pos = 0};
    ZSTD_outBuffer output{.dst = out, .size = room, .pos = 0};
    const std::size_t rc = ZSTD_decompressStream(stream, &output, &input);
    in.remove_prefix(input.pos);
    out += output.pos;
    room -= output.pos;
    if (ZSTD_isError(rc)) {
      fault = ZSTD_getErrorCode(rc) == ZSTD_error_frameParameter_windowTooLarge ? "zstd with a window above 128 MiB" : "damaged zstd";
      return Step::kFault;
    }
    return rc == 0 ? Step::kMemberEnds : Step::kMore;
  }
  ZSTD_DStream* stream;
};

void ByteSource::CloseFile::operator()(void* file) const { std::fclose(static_cast<std::FILE*>(file)); }

ByteSource::ByteSource(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
  if (!file_) return;
  std::setvbuf(static_cast<std::FILE*>(file_.get()), nullptr, _IONBF, 0);  // reads are large
  refill();
  if (in_.size() >= 3 && in_.compare(0, 3, "\x1F\x8B\x08") == 0) decoder_ = std::make_unique<GzipDecoder>();
  constexpr std::string_view zstd_magic("\x28\xB5\x2F\xFD", 4), skippable("\x2A\x4D\x18", 3);
  if (in_.starts_with(zstd_magic) || (in_.size() >= 8 && (in_[0] & 0xF0) == 0x50 && std::string_view(in_).substr(1, 3) == skippable))
    decoder_ = std::make_unique<ZstdDecoder>();
  compressed_ = decoder_ != nullptr;
}

ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;

std::size_t ByteSource::refill() {
  if (at_ == in_.size()) {
    in_.resize(kInput);
    at_ = 0;
    auto* file = static_cast<std::FILE*>(file_.get());
    errno = 0;
    in_.resize(std::fread(in_.data(), 1, kInput, file));
    require(!std::ferror(file), "cannot read ", path_, ": ", std::strerror(errno));
    read_ += static_cast<std::int64_t>(in_.size());
  }
  return in_.size() - at_;
}

std::size_t ByteSource::read(char* to, std::size_t bytes) {
  char* out = to;
  std::size_t room = bytes;
  if (!decoder_) {
    while (room > 0 && refill() > 0) {
      const std::size_t n = std::min(room, in_.size() - at_);
      std::memcpy(out, in_.data() + at_, n);
      at_ += n, out += n, room -= n;
    }
    return bytes - room;
  }
  while (room > 0 && fault_.empty() && !ended_) {
    const bool input_ends = refill() == 0;
    std::string_view in = std::string_view(in_).substr(at_);
    const std::size_t in_before = in.size(), room_before = room;
    if (input_ends && whole_) {
      ended_ = true;
      break;
    }
    const Step step = decoder_->step(in, out, room, fault_);
    at_ += in_before - in.size();
    made_ += static_cast<std::int64_t>(room_before - room);
    whole_ = step == Step::kMemberEnds;
    if (input_ends && !whole_ && room == room_before) fault_ = cat(decoder_->name(), " that is cut short");
    if (made_ > kBombBytes && made_ / kBombRatio > read_) fault_ = cat(decoder_->name(), " bomb");
  }
  return bytes - room;
}

std::string_view without_compression(std::string_view name) {
  for (const std::string_view suffix : {".gz", ".zst", ".zstd"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

}  // namespace flashgpt
