// Completion scripts and the manual page, as the shells and groff take them: each is asked only where it is installed.
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "io/test_folder.h"
#include "replay/program.h"

namespace flashgpt {
namespace {

using testing::Program;

std::string printed(const std::vector<std::string>& args, const TestFolder& folder) {
  Program p(args, (folder / "printed").string());
  EXPECT_EQ(p.wait(), 0);
  return p.output();
}

bool installed(const char* program) { return std::system(cat("command -v ", program, " >/dev/null 2>&1").c_str()) == 0; }

// Output of a shell command, both streams; its exit code must be 0.
std::string shell(const std::string& command, const TestFolder& folder) {
  const std::string out = (folder / "shell").string();
  const int status = std::system(cat("(", command, ") >", out, " 2>&1").c_str());
  const std::string text = read_file(out);
  EXPECT_EQ(WEXITSTATUS(status), 0) << command << "\n" << text;
  return text;
}

class Completion : public ::testing::Test {
 protected:
  std::string script(const char* name) {
    const std::filesystem::path path = folder_ / name;
    write_atomic(path, printed({"completion", name}, folder_));
    return path.string();
  }
  // What bash would offer for the words so far; the last is being typed.
  std::string bash(const std::vector<std::string>& words) {
    std::string array;
    for (const std::string& w : words) array += " '" + w + "'";
    write_atomic(folder_ / "ask", cat("compopt() { :; }\nsource ", script("bash"), "\nCOMP_WORDS=(", array,
                                      ")\nCOMP_CWORD=", words.size() - 1, "\n_flashgpt\nprintf '%s ' \"${COMPREPLY[@]}\"\n"));
    return " " + shell("bash " + (folder_ / "ask").string(), folder_);
  }
  TestFolder folder_;
};

TEST_F(Completion, BashOffersCommandsFlagsWordsAndKeys) {
  if (!installed("bash")) GTEST_SKIP() << "no bash";
  for (const char* c : {" train ", " eval ", " data ", " man "}) EXPECT_NE(bash({"flashgpt", ""}).find(c), std::string::npos) << c;
  EXPECT_EQ(bash({"flashgpt", "tr"}), " train ");
  EXPECT_EQ(bash({"flashgpt", "data", "p"}), " prepare ");
  EXPECT_EQ(bash({"flashgpt", "bench", "train", "--preci"}), " --precision ");
  EXPECT_EQ(bash({"flashgpt", "train", "--recomp"}), " --recompute ");
  EXPECT_EQ(bash({"flashgpt", "train", "--recompute", "b"}), " block ");
  EXPECT_EQ(bash({"flashgpt", "train", "--recompute", "=", "b"}), " block ");
  EXPECT_EQ(bash({"flashgpt", "train", "train_params.rec"}), " train_params.recompute= ");
  EXPECT_EQ(bash({"flashgpt", "train", "train_params.recompute", "=", "m"}), " mlp ");
  EXPECT_EQ(bash({"flashgpt", "train", "--steps", ""}), "  ");
  EXPECT_EQ(bash({"flashgpt", "eval", "model", "--mode", "s"}), " sliding ");
}

TEST_F(Completion, ScriptsAreWellFormed) {
  if (installed("bash")) shell("bash -n " + script("bash"), folder_);
  if (installed("zsh")) shell("zsh -n " + script("zsh"), folder_);
  if (!installed("fish")) GTEST_SKIP() << "no fish";
  const std::string source = "fish --no-config -c 'source " + script("fish") + "; complete -C ";
  EXPECT_NE(shell(source + "\"flashgpt tr\"'", folder_).find("train\t"), std::string::npos);
  EXPECT_NE(shell(source + "\"flashgpt train --recompute bl\"'", folder_).find("block"), std::string::npos);
  EXPECT_NE(shell(source + "\"flashgpt train --recom\"'", folder_).find("--recompute"), std::string::npos);
}

TEST_F(Completion, AnUnknownShellIsAUsageError) {
  Program p({"completion", "csh"}, (folder_ / "printed").string());
  EXPECT_EQ(p.wait(), 2);
  EXPECT_NE(p.output().find("expected bash, zsh or fish"), std::string::npos);
}

TEST(Man, TellsEveryOptionAndGroffHasNoComplaint) {
  const TestFolder folder;
  const std::string page = printed({"man"}, folder);
  for (const char* word :
       {"\\-\\-recompute", "\\-\\-mode", "train_params.learning_rate", "SH EXIT STATUS", "SH DATA PREPARE", "FLASHGPT_ISA"})
    EXPECT_NE(page.find(word), std::string::npos) << word;
  if (!installed("groff")) GTEST_SKIP() << "no groff";
  write_atomic(folder / "page", page);
  const std::string groff = "groff -man -ww -Tascii -P-cbou " + (folder / "page").string();
  EXPECT_EQ(shell(groff + " 2>&1 >/dev/null", folder), "");
  EXPECT_NE(shell(groff, folder).find("--learning-rate"), std::string::npos);
}

TEST(Help, EveryCommandHasOne) {
  const TestFolder folder;
  for (const char* c : {"data", "train", "generate", "eval", "report", "plan", "doctor", "completion", "man", "version"})
    EXPECT_TRUE(printed({c, "--help"}, folder).starts_with("usage: flashgpt ")) << c;
}

}  // namespace
}  // namespace flashgpt
