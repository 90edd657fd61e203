// What the program does with arguments that it cannot take, and with output that nobody gets: exit codes and messages, of the program
// itself.
#include <nlohmann/json.hpp>

#include "data/temporary_folder.h"
#include "flashgpt/error.h"
#include "replay/program.h"

namespace flashgpt::testing {
namespace {

class Arguments : public ::testing::Test {
 protected:
  struct Result {
    int code;
    std::string output;
  };
  Result go(const std::vector<std::string>& args) {
    Program program(args, folder_.path("output"));
    const int code = program.wait();
    return {code, program.output()};
  }
  void ends(const std::vector<std::string>& args, int code, const std::string& part) {
    const Result r = go(args);
    EXPECT_EQ(r.code, code) << args[0] << ": " << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << args[0] << ": " << r.output;
  }
  // The exit code with standard output going to `file`; empty: closed.
  int into(const std::vector<std::string>& args, const std::string& file) {
    std::string command = std::string(FLASHGPT_PROGRAM);
    for (const std::string& a : args) command += " '" + a + "'";
    const int status = std::system((command + " 2> '" + folder_.path("errors") + "' >" + (file.empty() ? "&-" : file)).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::vector<std::string> tiny(std::vector<std::string> args) {
    for (const char* s : {"model.layers=1", "model.width=32", "model.heads=2", "model.context_len=32", "train_params.context_len=32",
                          "threads=1", "train_params.batch_size=4", "train_params.steps=3"})
      args.emplace_back(s);
    return args;
  }
  void train() {
    folder_.file("text.txt", std::string(2000, 'a') + "bcd\n");
    const Result r = go(tiny({"train", "--data", folder_.path("text.txt"), "--out", folder_.path("run"), "model.family=gpt2"}));
    ASSERT_EQ(r.code, 0) << r.output;
  }

  TemporaryFolder folder_;
};

TEST_F(Arguments, EmptyPathsNameTheirFlag) {
  ends({"train", "--out", ""}, 2, "--out = \"\", expected a path");
  ends({"train", "--data="}, 2, "--data = \"\"");
  ends({"train", "--config", ""}, 2, "--config = \"\"");
  ends({"train", "--resume="}, 2, "--resume = \"\"");
  ends({"train", "--init-from", ""}, 2, "--init-from = \"\"");
  ends({"train", ""}, 2, "argument 1");
  ends({"data", "prepare", "--out", "", folder_.path("x")}, 2, "--out = \"\"");
  ends({"data", "prepare", ""}, 2, "argument 1");
  ends({"eval", "", "x"}, 2, "argument 1");
  ends({"eval", "m", "--data", ""}, 2, "--data = \"\"");
  ends({"report", ""}, 2, "argument 1");
  ends({"bench", "attention", "--json", ""}, 2, "--json = \"\"");
}

TEST_F(Arguments, NothingIsDroppedInSilence) {
  ends({"plan", "a.yaml", "b.yaml"}, 2, "plan: unexpected argument 'b.yaml'");
  ends({"train", "a.yaml", "b.yaml"}, 2, "train: unexpected argument 'b.yaml'");
  ends({"version", "extra"}, 2, "version: unexpected argument 'extra'");
  ends({"man", "extra"}, 2, "man: unexpected argument 'extra'");
  ends({"report", "a", "b"}, 2, "report: unexpected argument 'b'");
  ends({"doctor", "a", "b"}, 2, "doctor: unexpected argument 'b'");
  ends({"bench", "attention", "x"}, 2, "unexpected argument 'x'");
  ends({"bench", "train", "x"}, 2, "'x' is neither an option nor a configuration file");
  ends({"bench", "attention", "--lengths", "64x"}, 2, "--lengths = 64x");
}

TEST_F(Arguments, ExitCodesAreThoseOfTheReadme) {
  ends({"train", "stray"}, 2, "'stray' is neither an option nor a configuration file");
  ends({"plan", "stray"}, 2, "'stray' is neither an option nor a configuration file");
  ends({"train", "--beta1", "1"}, 2, "--beta1 = \"1\", expected a number of at least 0, below 1");
  ends({"train", "--beta2", "2"}, 2, "--beta2 = \"2\", expected a number of at least 0, below 1");
  ends({"generate", "M"}, 2, "expected text to continue");
  ends({"generate", "M", "--prompt", ""}, 2, "expected text to continue");
  ends({"generate"}, 2, "expected a model folder");
  ends({"eval", "M"}, 2, "expected a model folder and text");
  ends({"eval", "M", "x", "--tokens", "y"}, 2, "expected both or none");
  ends({"bogus"}, 2, "unknown command 'bogus'; flashgpt --help");
  ends({"plam"}, 2, "did you mean 'plan'?");
  folder_.file("key.yaml", "train_params:\n  batch_sise: 1\n");
  folder_.file("value.yaml", "train_params:\n  batch_size: x\n");
  for (const char* command : {"plan", "train"}) {
    ends({command, folder_.path("key.yaml")}, 3, "key.yaml:2: unknown key train_params.batch_sise");
    ends({command, folder_.path("value.yaml")}, 3, "value.yaml:2: train_params.batch_size = \"x\"");
    ends({command, folder_.path("none.yaml")}, 3, "none.yaml");
  }
}

TEST_F(Arguments, NumbersBeyondAnyMachineAreNamed) {
  for (const char* command : {"plan", "train"}) {
    ends({command, "--layers", "1000000000"}, 2, "--layers = \"1000000000\", expected a whole number from 1 to 4096");
    ends({command, "--width", "1000000000000"}, 2, "--width = \"1000000000000\", expected a whole number from 1 to 1048576");
    ends({command, "--context-len", "9223372036854775807"}, 2, "--context-len = \"9223372036854775807\", expected a whole number");
    ends({command, "--batch-size", "2000000000"}, 2, "--batch-size = \"2000000000\", expected a whole number from 1 to 1048576");
    ends({command, "--vocab-size", "99999999999"}, 2, "--vocab-size = \"99999999999\"");
    ends({command, "--threads", "4294967297"}, 2, "--threads = \"4294967297\"");
    ends({command, "--steps", "9223372036854775807"}, 2, "--steps");
  }
  ends({"generate", "M", "--prompt", "a", "--max-new-tokens", "99999999999"}, 2, "--max-new-tokens = \"99999999999\"");
  // Each in its range, but not together.
  const std::vector<std::string> all{"--layers",      "4096",       "--width",      "1048576", "--heads",       "4096",
                                     "--context-len", "2147483648", "--batch-size", "1048576", "--micro-batch", "1048576"};
  for (const char* command : {"plan", "train"}) {
    std::vector<std::string> args{command, "--out", folder_.path("huge")};
    if (args[0] == "plan") args.resize(1);
    args.insert(args.end(), all.begin(), all.end());
    folder_.file("text.txt", "some text of a few words\n");
    args.push_back("--data");
    args.push_back(folder_.path("text.txt"));
    if (args[0] == "plan") args.resize(args.size() - 2);
    ends(args, 3, "micro_batch = 1048576");
  }
}

TEST_F(Arguments, PlanningTimeGrowsWithTheLayers) {
  const auto start = std::chrono::steady_clock::now();
  ends({"plan", "--layers", "4096", "--width", "64", "--heads", "2", "--memory", "64T"}, 0, "parameters");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5);
}

TEST_F(Arguments, OutputThatIsLostIsAFailure) {
  train();
  const std::string run = folder_.path("run"), text = folder_.path("text.txt");
  const std::vector<std::vector<std::string>> commands{{"--help"},          {"train", "--help"},
                                                       {"version"},         {"plan"},
                                                       {"eval", run, text}, {"generate", run, "--prompt", "a", "--max-new-tokens", "3"}};
  for (const auto& command : commands) {
    EXPECT_EQ(into(command, "/dev/null"), 0) << command[0] << folder_.read("errors");
    for (const char* lost : {"/dev/full", ""}) {
      EXPECT_EQ(into(command, lost), 1) << command[0];
      EXPECT_NE(folder_.read("errors").find("standard output could not be written"), std::string::npos) << command[0];
    }
  }
}

TEST_F(Arguments, DataThatIsNotWholeIsNoText) {
  folder_.file("text.txt", std::string(500, 'x') + "\n");
  ASSERT_EQ(go({"data", "prepare", folder_.path("text.txt"), "--out", folder_.path("data")}).code, 0);
  ends({"data", "prepare", folder_.path("data"), "--out", folder_.path("again")}, 3, "prepared already");
  std::filesystem::remove(folder_.path("data/meta.json"));
  ends(tiny({"train", "--data", folder_.path("data"), "--out", folder_.path("run")}), 3, "no meta.json");
  ends({"data", "prepare", folder_.path("data"), "--out", folder_.path("again")}, 3, "no meta.json");
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run/final")));
  ends({"data", "prepare", folder_.path(""), "--out", folder_.path("again")}, 0, "prepared data");  // passed over, and told
}

TEST_F(Arguments, EvalUnpacksWhatIsCompressed) {
  train();
  constexpr std::string_view kPacked(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\x4a\x4c\x4a\x4e\x51\x80\x13\x4a\xb5\x5c\x00\x59\x8b\x35\x3d\x1b\x00\x00\x00",
      39);  // gzip of the line below
  folder_.file("a.jsonl", "{\"text\": \"abcd abcd abcd\"}\n");
  folder_.file("a.jsonl.gz", std::string(kPacked));
  folder_.file("cut.jsonl.gz", std::string(kPacked.substr(0, 20)));
  const Result plain = go({"eval", folder_.path("run/final"), folder_.path("a.jsonl")});
  EXPECT_EQ(plain.code, 0) << plain.output;
  EXPECT_EQ(go({"eval", folder_.path("run/final"), folder_.path("a.jsonl.gz")}).output, plain.output);
  ends({"eval", folder_.path("run/final"), folder_.path("cut.jsonl.gz")}, 3, "cut.jsonl.gz: is gzip that is cut short");
}

TEST_F(Arguments, ARunStandsForItsModel) {
  train();
  const std::string run = folder_.path("run");
  ends({"eval", run, folder_.path("text.txt")}, 0, "taking " + run + "/final");
  std::filesystem::remove_all(run + "/final");
  ends({"eval", run, folder_.path("text.txt")}, 0, "taking " + run + "/checkpoints/step_00000003");
  ends({"generate", run, "a", "--max-new-tokens", "1"}, 0, "taking " + run + "/checkpoints/step_00000003");
  ends({"generate", run, "a", "--temperature", "0", "--max-new-tokens", "100"}, 0, "learned positions for 32 tokens");
  ends({"generate", run, "a", "--temperature", "0", "--max-new-tokens", "100", "--capacity", "8"}, 0, "the cache holds 8 tokens");
}

}  // namespace
}  // namespace flashgpt::testing
