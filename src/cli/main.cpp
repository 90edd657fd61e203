// flashgpt: the table of commands, and errors turned into exit codes (0 done, 1 failure, 2 usage, 3 bad configuration or data, 4 device or
// memory).
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <new>

#include "cli/command.h"
#include "flashgpt/error.h"
#include "io/options.h"

const std::vector<flashgpt::cli::Command>& flashgpt::cli::commands() {
  static const std::vector<Command> table = {
      {"data", "prepare text for training: flashgpt data prepare PATH... --out DIR", data, {"prepare"}},
      {"train", "train a model: flashgpt train --data PATH --out RUN", train},
      {"generate", "continue a text: flashgpt generate MODEL --prompt TEXT", generate},
      {"eval", "loss, perplexity and bits per byte of a model, by context: flashgpt eval MODEL PATH...", eval},
      {"report", "one HTML page about a run: flashgpt report RUN", report},
      {"plan", "the memory that a training needs, to the byte: flashgpt plan CONFIG.yaml", plan},
      {"bench", "measure: flashgpt bench attention | train", bench, {"attention", "train"}},
      {"doctor", "check this machine: what it gives a training, and what to do where it falls short", doctor},
      {"completion", "words for the Tab key: flashgpt completion bash | zsh | fish", completion, {"bash", "zsh", "fish"}},
      {"man", "the manual page: flashgpt man | man -l -", man},
      {"version", "version, instruction set and libraries", version},
  };
  return table;
}

namespace {

using flashgpt::cli::Command;

void print_help(std::FILE* out) {
  std::fprintf(out, "flashgpt trains and runs long-context GPTs with exact, tiled attention.\n\nusage: flashgpt COMMAND [arguments]\n\n");
  for (const Command& c : flashgpt::cli::commands()) std::fprintf(out, "  %-10s %s\n", c.name, c.summary);
  std::fprintf(out, "\nflashgpt COMMAND --help says more. Results go to standard output, messages to standard error.\n");
}

// Descriptors 0 to 2 that are closed would be given to the next files opened, and messages written into these. In their place stand ones
// on which reading, or writing, fails as on the closed ones.
void fill_closed_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1) (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// The code of a command that ended with `code`, once all it printed has been taken: a full disk or a closed pipe is a failure.
int with_output(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  std::fprintf(stderr, "flashgpt: standard output could not be written, what is there is not whole\n");
  return code != 0 ? code : static_cast<int>(flashgpt::ErrorCode::kFailure);
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a closed terminal or pipe must not end a training
  const std::vector<std::string> args(argv + (argc > 0), argv + argc);
  if (args.empty()) {
    print_help(stderr);
    return static_cast<int>(flashgpt::ErrorCode::kUsage);
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    print_help(stdout);
    return with_output(0);
  }
  const std::string name = args[0] == "--version" ? "version" : args[0];
  try {
    std::vector<std::string> names;
    for (const Command& c : flashgpt::cli::commands()) {
      if (name == c.name) return with_output(c.run({args.begin() + 1, args.end()}));
      names.push_back(c.name);
    }
    const std::string guess = flashgpt::similar(name, names);
    throw flashgpt::Error(flashgpt::ErrorCode::kUsage,
                          flashgpt::cat("unknown command '", name, "'; ", guess.empty() ? "" : "did you mean '" + guess + "'? ",
                                        "flashgpt --help lists them"));
  } catch (const flashgpt::Error& e) {
    std::fprintf(stderr, "flashgpt: %s\n", e.what());
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "flashgpt: out of host memory\n");
    return static_cast<int>(flashgpt::ErrorCode::kDevice);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "flashgpt: %s\n", e.what());
    return static_cast<int>(flashgpt::ErrorCode::kFailure);
  }
}
