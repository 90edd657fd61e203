// TensorBoard's event files: known checksums and bytes, and a reader of records here.
#include "io/event_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/file.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const unsigned char b : bytes) out += "0123456789abcdef"[b >> 4], out += "0123456789abcdef"[b & 15];
  return out;
}

// Written by tensorboard 2.21's RecordWriter for the same values.
TEST(EventRecord, BytesOfTensorBoardsOwnWriter) {
  const Scalar loss{"loss", 0.5};
  EXPECT_EQ(hex(event_record(2.0, 300, std::span(&loss, 1))),
            "1b000000000000001a0d9e1309000000000000004010ac022a0d0a0b0a046c6f7373150000003fdfc52b60");
  EXPECT_EQ(hex(version_record(2.0)), "1800000000000000a37f4b220900000000000000401a0d627261696e2e4576656e743a32ff2ee0e7");
}

std::vector<std::string> payloads(const std::string& file) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t n = 0;
    EXPECT_LE(at + 16, file.size());
    std::memcpy(&n, file.data() + at, 8);
    EXPECT_LE(at + 16 + n, file.size());
    if (at + 16 + n > file.size()) break;
    out.push_back(file.substr(at + 12, n));
    at += 16 + n;
  }
  return out;
}

TEST(EventFile, AFileASittingAndWholeRecords) {
  const TestFolder folder;
  std::filesystem::path first, second;
  {
    EventFile a(folder.path(), 1), b(folder.path(), 41);
    ASSERT_TRUE(a.open());
    ASSERT_TRUE(b.open());
    first = a.path();
    second = b.path();
    EXPECT_NE(first, second);
    a.write(1, {{"train/loss", 3.5}, {"train/norm", 1}});
    EXPECT_EQ(payloads(read_file(first)).size(), 3u);  // nothing waits in a buffer
    b.write(41, {{"train/loss", 3.5}});
  }
  const std::vector<std::string> a = payloads(read_file(first)), b = payloads(read_file(second));
  EXPECT_NE(a[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(a[2].find("train/norm"), std::string::npos);
  ASSERT_EQ(b.size(), 3u);
  EXPECT_EQ(b[1].substr(9), std::string("\x10\x29\x3a\x02\x08\x01", 6));  // step 41, session_log {status: START}
}

TEST(EventFile, AFolderThatIsNotThereFailsNothing) {
  EventFile file("/proc/none", 1);
  EXPECT_FALSE(file.open());
  file.write(1, {{"loss", 1}});
}

}  // namespace
}  // namespace flashgpt
