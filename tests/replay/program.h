// The built program run as a child, to be asked, signalled and killed.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "io/file.h"

namespace flashgpt::testing {

class Program {
 public:
  // Starts `flashgpt ARGS`; both its outputs go to the file `output`.
  Program(const std::vector<std::string>& args, const std::string& output) : output_(output) {
    std::vector<std::string> all{FLASHGPT_PROGRAM};
    all.insert(all.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(fd, 1);
      ::dup2(fd, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Program() {
    if (pid_ > 0 && !ended_) {
      send(SIGKILL);
      wait();
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal) const { ::kill(pid_, signal); }
  // The exit code; of a signal that ended it, its number below 0.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool running() {
    if (ended_) return false;
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  // Until the condition holds; false when the program ended before.
  bool until(const std::function<bool()>& condition) {
    while (!condition()) {
      if (!running()) return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  std::string output() const { return read_file(output_); }

 private:
  std::string output_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

}  // namespace flashgpt::testing
