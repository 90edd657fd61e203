#include "io/folder_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "flashgpt/error.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

TEST(FolderLock, OneHolderAtATime) {
  const TestFolder folder;
  const std::filesystem::path run = folder / "run";
  std::optional<FolderLock> lock;
  lock.emplace(run);
  try {
    FolderLock second(run);
    FAIL() << "two holders";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(cat("process ", ::getpid())), std::string::npos) << e.what();
  }
  lock.reset();
  EXPECT_NO_THROW(FolderLock{run});
}

TEST(FolderLock, EndsWithTheProcessHoweverItEnds) {
  const TestFolder folder;
  const std::filesystem::path run = folder / "run";
  const pid_t child = ::fork();
  if (child == 0) {
    static FolderLock lock(run);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_NO_THROW(FolderLock{run});
}

}  // namespace
}  // namespace flashgpt
