#include "io/log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/json.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

TEST(JsonLines, OneObjectALineWithTheSystemAtOnce) {
  TestFolder folder;
  JsonLines log(folder / "log");
  log.write(compact_json(Json{{"step", 1}, {"text", "a\nb"}}));
  EXPECT_EQ(read_file(folder / "log"), "{\"step\":1,\"text\":\"a\\nb\"}\n");
  log.write("{}");
  EXPECT_EQ(read_file(folder / "log"), "{\"step\":1,\"text\":\"a\\nb\"}\n{}\n");
  expect_error([&] { log.write("{\n}"); }, "line break");
}

TEST(JsonLines, GoesOnAndCutsATornLine) {
  TestFolder folder;
  for (const std::size_t torn : {0u, 1u, 4095u, 4096u, 4097u, 20000u}) {
    write_atomic(folder / "log", "{\"step\":1}\n{\"step\":2}\n" + std::string(torn, 'x'));
    JsonLines(folder / "log").write("{\"step\":3}");
    EXPECT_EQ(read_file(folder / "log"), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n") << torn;
  }
  write_atomic(folder / "log", "{\"step\"");
  JsonLines(folder / "log").write("{}");
  EXPECT_EQ(read_file(folder / "log"), "{}\n");
}

TEST(JsonLines, AFullDiskIsAnErrorThatNamesTheFile) {
  expect_error([] { JsonLines("/dev/full").write("{}"); }, "/dev/full: No space left");
  expect_error([] { JsonLines("/nowhere/log"); }, "/nowhere/log: No such file");
}

TEST(JsonLines, HalfALineIsTakenBack) {
  TestFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{25, 25};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    JsonLines log(folder / "log");
    log.write("{\"step\":1}");
    int failures = 0;
    for (int i = 0; i < 2; ++i) try {
        log.write("{\"long\":\"0123456789abcdef\"}");
      } catch (const Error&) {
        ++failures;
      }
    log.write("{\"step\":2}");
    ::_exit(failures == 2 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "log"), "{\"step\":1}\n{\"step\":2}\n");
}

}  // namespace
}  // namespace flashgpt
