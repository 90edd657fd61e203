#include "io/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>

#include "flashgpt/error.h"

namespace flashgpt {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;  // the polynomial, bits reversed
    table[i] = c;
  }
  return table;
}

// A CRC of data that itself holds CRCs is weak: TFRecord rotates and adds a constant.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

template <class T> void put_fixed(std::string& out, T value) {
  auto bits = std::bit_cast<std::array<unsigned char, sizeof(T)>>(value);
  out.append(reinterpret_cast<const char*>(bits.data()), bits.size());
}

enum Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>((v & 0x7F) | 0x80);
  out += static_cast<char>(v);
}

void put_key(std::string& out, std::uint32_t field, Wire wire) { put_varint(out, field << 3 | wire); }

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event(double wall_time, std::int64_t step) {
  std::string out;
  put_key(out, 1, kFixed64);
  put_fixed(out, wall_time);
  if (step == 0) return out;  // protobuf leaves zeros out
  put_key(out, 2, kVarint);
  put_varint(out, static_cast<std::uint64_t>(step));
  return out;
}

std::string record(const std::string& payload) {
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(payload.size()));
  put_fixed(out, masked_crc(out));
  out += payload;
  put_fixed(out, masked_crc(payload));
  return out;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t c = ~0u;
  for (const char b : bytes) c = kTable[(c ^ static_cast<unsigned char>(b)) & 0xFF] ^ (c >> 8);
  return ~c;
}

std::string version_record(double wall_time) {
  std::string e = event(wall_time, 0);
  put_bytes(e, 3, "brain.Event:2");
  return record(e);
}

std::string start_record(double wall_time, std::int64_t first_step) {
  std::string log, e = event(wall_time, first_step);
  put_key(log, 1, kVarint);
  put_varint(log, 1);  // SessionLog.START
  put_bytes(e, 7, log);
  return record(e);
}

std::string event_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary, e = event(wall_time, step);
  for (const Scalar& s : scalars) {
    std::string value;
    put_bytes(value, 1, s.tag);
    put_key(value, 2, kFixed32);
    put_fixed(value, static_cast<float>(s.value));
    put_bytes(summary, 1, value);
  }
  put_bytes(e, 5, summary);
  return record(e);
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const double time = now();
  // TensorBoard reads the files of a folder in the order of their names: the seconds have ten digits until the year 2286.
  const std::string name = cat("events.out.tfevents.", static_cast<std::int64_t>(time), ".", host, ".", ::getpid());
  for (int n = 0; fd_ < 0 && n < 1000; ++n) {
    path_ = folder / cat(name, ".", n);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0666);
    if (fd_ < 0 && errno != EEXIST) return;
  }
  put(version_record(time));
  put(start_record(time, first_step));
}

EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

void EventFile::write(std::int64_t step, std::span<const Scalar> scalars) {
  if (fd_ >= 0) put(event_record(now(), step, scalars));
}

void EventFile::put(const std::string& record) {
  if (fd_ < 0) return;
  for (std::size_t done = 0; done < record.size();) {
    const ssize_t n = ::write(fd_, record.data() + done, record.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      ::close(fd_);
      fd_ = -1;
      return;
    }
  }
}

}  // namespace flashgpt
