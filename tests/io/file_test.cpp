#include "io/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "flashgpt/error.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {
namespace fs = std::filesystem;

TEST(File, WritesAndReadsBack) {
  TestFolder folder;
  for (const std::size_t size : {0u, 1u, 65535u, 65536u, 1000000u}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    write_atomic(folder / "a", text);
    EXPECT_EQ(read_file(folder / "a"), text);
    EXPECT_EQ(file_size(folder / "a"), size);
    const MappedFile map(folder / "a");
    ASSERT_EQ(map.bytes().size(), size);
    if (size > 0) {
      EXPECT_EQ(std::memcmp(map.bytes().data(), text.data(), size), 0);
    }
  }
  EXPECT_EQ(list_directory(folder.path()).size(), 1u) << "a temporary file was left";
}

TEST(File, ReadsWhatHasNoSize) { EXPECT_NE(read_file("/proc/self/status").find("VmRSS"), std::string::npos); }

TEST(File, MissingFilesAreNamedWithTheSystemsMessage) {
  TestFolder folder;
  expect_error([&] { read_file(folder / "none"); }, "none: No such file");
  expect_error([&] { MappedFile(folder / "none"); }, "none: No such file");
  expect_error([&] { write_atomic(folder / "no" / "file", "x"); }, "file: No such file");
  expect_error([&] { list_directory(folder / "none"); }, "none: No such file");
  expect_error([&] { file_size(folder / "none"); }, "none: No such file");
  expect_error([&] { free_bytes(folder / "none"); }, "none: No such file");
  expect_error([&] { rename_path(folder / "none", folder / "other"); }, "none to ");
  expect_error([&] { MappedFile(folder.path()); }, "no regular file");
  expect_error([&] { read_file(folder.path()); }, "directory");
}

TEST(File, NeverReplacesADeviceOrAFolder) {
  TestFolder folder;
  expect_error([] { write_atomic("/dev/null", "x"); }, "no regular file");
  expect_error([&] { write_atomic(folder.path(), "x"); }, "no regular file");
  expect_error([&] { write_atomic("", "x"); }, "cannot write");
}

TEST(File, FollowsALink) {
  TestFolder folder;
  write_atomic(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  write_atomic(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");
  fs::create_symlink("later", folder / "dangling");
  write_atomic(folder / "dangling", "x");
  EXPECT_EQ(read_file(folder / "later"), "x");
  fs::create_symlink("ring", folder / "ring");
  expect_error([&] { write_atomic(folder / "ring", "x"); }, "ring");
}

TEST(File, WithoutACommitTheOldFileStays) {
  TestFolder folder;
  write_atomic(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new", 3);
    file.write(std::string(1 << 20, 'y'));
    EXPECT_EQ(file.size(), 3u + (1u << 20));
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(list_directory(folder.path()).size(), 1u);
}

TEST(File, NothingAfterACommit) {
  TestFolder folder;
  AtomicFile file(folder / "a");
  file.commit();
  expect_error([&] { file.write("x"); }, "after its commit");
  expect_error([&] { file.commit(); }, "second commit");
  EXPECT_EQ(read_file(folder / "a"), "");
}

// A file size limit stands in for a full disk: write() gives fewer bytes, then an error.
TEST(File, AFullDiskLeavesTheOldFileAndNoTemporaryOne) {
  TestFolder folder;
  write_atomic(folder / "a", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      write_atomic(folder / "a", std::string(3000000, 'z'));
    } catch (const Error& error) {
      code = std::string(error.what()).find("cannot write") != std::string::npos && error.code() == ErrorCode::kInvalid ? 0 : 2;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(list_directory(folder.path()).size(), 1u);
}

TEST(File, AKillLeavesTheOldFileOrTheNewOne) {
  TestFolder folder;
  const std::string old_text(3000, 'a'), new_text(5000, 'b');
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    if (child == 0)
      for (int i = 0;; ++i) write_atomic(folder / "a", i % 2 ? old_text : new_text);
    while (!exists(folder / "a")) ::usleep(100);
    ::usleep(static_cast<useconds_t>(500 + 731 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string found = read_file(folder / "a");
    EXPECT_TRUE(found == old_text || found == new_text) << found.size();
  }
}

TEST(File, Directories) {
  TestFolder folder;
  make_directories(folder / "x" / "y" / "z");
  make_directories(folder / "x" / "y" / "z");
  make_directories(folder / "x" / "w/");
  write_atomic(folder / "x" / "file", "1");
  EXPECT_EQ(list_directory(folder / "x"), (std::vector<fs::path>{folder / "x" / "file", folder / "x" / "w", folder / "x" / "y"}));
  expect_error([&] { make_directories(folder / "x" / "file"); }, "file");
  expect_error([&] { make_directories(folder / "x" / "file" / "more"); }, "more");
  rename_path(folder / "x", folder / "new");
  EXPECT_TRUE(exists(folder / "new" / "file"));
  EXPECT_FALSE(exists(folder / "x"));
  expect_error([&] { rename_path(folder / "new" / "y", folder / "new" / "file"); }, "file");
  remove_tree(folder / "new");
  remove_tree(folder / "new");
  EXPECT_FALSE(exists(folder / "new"));
  EXPECT_GT(free_bytes(folder.path()), 0u);
}

TEST(File, MappingsMove) {
  TestFolder folder;
  write_atomic(folder / "a", "aaa");
  write_atomic(folder / "b", "bb");
  MappedFile a(folder / "a"), b(folder / "b");
  MappedFile c(std::move(a));
  EXPECT_EQ(c.bytes().size(), 3u);
  c = std::move(b);
  EXPECT_EQ(c.bytes().size(), 2u);
  EXPECT_EQ(static_cast<char>(c.bytes()[0]), 'b');
}

// Values of the xxHash project's own library.
TEST(Checksum, IsXxh64) {
  EXPECT_EQ(checksum64(""), 0xef46db3751d8e999u);
  EXPECT_EQ(checksum64("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(checksum64("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(checksum64("abc", 7), 0x9e755206156676d7u);
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i % 251);
  EXPECT_EQ(checksum64(std::string_view(text).substr(0, 63)), 0x9d597e61218f5977u);
  EXPECT_EQ(checksum64(text, 123456789), 0xfe99989e5670afb5u);
}

TEST(Checksum, PartsMayBeCutAnywhere) {
  std::string text(200, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(31 * i + 7);
  const auto bytes = std::as_bytes(std::span(std::string_view(text)));
  for (std::size_t first = 0; first <= text.size(); first += 3) {
    for (std::size_t second = first; second <= text.size(); second += 11) {
      Checksum64 sum(5);
      sum.update(bytes.first(first));
      sum.update(bytes.subspan(first, second - first));
      sum.update(bytes.subspan(second));
      ASSERT_EQ(sum.value(), checksum64(bytes, 5)) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace flashgpt
