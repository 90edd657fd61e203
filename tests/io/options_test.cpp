#include "io/options.h"

#include <gtest/gtest.h>

#include "io/option_values.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

enum class Recompute { kNone, kAct, kMlp, kBlock };
enum class Kind { kAdamW, kAdafactor };

struct Settings {
  std::int64_t batch_size = 16, context_len = 1024, micro_batch = 0, threads = 0, memory = 1 << 20;
  std::uint64_t seed = 1;
  std::optional<double> learning_rate;
  double clip = 1.0;
  std::optional<std::int64_t> warmup;
  std::optional<bool> tie;
  Kind optimizer = Kind::kAdamW;
  std::optional<Recompute> recompute;
  std::string out = "runs/x", resume, name;
  std::optional<std::string> prompt;
  bool json = false;
};

struct Options : ::testing::Test {
  Settings s;
  OptionTable table;

  Options() {
    table.title("train_params", "Training");
    table.add({.key = "train_params.batch_size", .field = &s.batch_size, .help = "rows of an optimizer step", .min = 1, .max = 1 << 20});
    table.add({.key = "train_params.context_len", .field = &s.context_len, .help = "tokens of a row", .min = 1});
    table.add({.key = "train_params.micro_batch", .field = &s.micro_batch, .help = "rows at a time", .min = 1, .words = {{"auto", 0}}});
    table.add({.key = "train_params.learning_rate",
               .field = &s.learning_rate,
               .help = "peak of the schedule; absent: the optimizer's own",
               .min = 0,
               .above_min = true});
    table.add({.key = "train_params.optimizer", .field = choice(s.optimizer), .help = "which", .words = {{"adamw", 0}, {"adafactor", 1}}});
    table.add({.key = "train_params.recompute",
               .field = choice(s.recompute),
               .help = "what is computed again in the backward pass",
               .words = {{"none", 0}, {"act", 1}, {"mlp", 2}, {"block", 3}},
               .absent = "auto"});
    table.add({.key = "train_params.grad_clip", .field = &s.clip, .help = "global norm", .min = 0});
    table.add({.key = "train_params.warmup_steps", .field = &s.warmup, .help = "steps of warm-up", .min = 0, .absent = "auto"});
    table.add({.key = "train_params.seed", .field = &s.seed, .help = "of everything random"});
    table.add({.key = "model.tie_embeddings", .field = &s.tie, .help = "head and embedding share weights"});
    table.add({.key = "model.name", .field = &s.name, .help = "a name"});
    table.add({.key = "threads", .field = &s.threads, .help = "workers", .min = 1, .words = {{"auto", 0}}});
    table.add({.key = "memory", .field = &s.memory, .help = "bytes that may be used", .min = 1, .size = true});
    table.add({.key = "out", .field = &s.out, .help = "folder of the run", .in_file = false});
    table.add({.key = "resume", .field = &s.resume, .help = "go on", .bare = "latest", .in_file = false});
    table.add({.key = "prompt", .field = &s.prompt, .help = "text to go on from", .in_file = false});
    table.add({.key = "json", .field = &s.json, .help = "results as JSON", .in_file = false});
  }
  void yaml(const std::string& text) { table.load_text(text, "run.yaml"); }
  Arguments args(const std::vector<std::string>& list) {
    Arguments a = table.split(list);
    table.apply(a);
    return a;
  }
  void rejects(const std::string& text, const std::string& part, ErrorCode code = ErrorCode::kInvalid) {
    expect_error([&] { yaml(text); }, part, code);
  }
  void rejects_args(const std::vector<std::string>& list, const std::string& part) {
    expect_error([&] { args(list); }, part, ErrorCode::kUsage);
  }
};

TEST_F(Options, TheUsersBlockParsesAsItStands) {
  yaml("train_params:\n  batch_size: 32\n  context_len: 8192\n  learning_rate: 6e-5\n  optimizer: adafactor\n");
  EXPECT_EQ(s.batch_size, 32);
  EXPECT_EQ(s.context_len, 8192);
  EXPECT_EQ(s.learning_rate, 6e-5);
  EXPECT_EQ(s.optimizer, Kind::kAdafactor);
  EXPECT_TRUE(table.given("train_params.learning_rate"));
  EXPECT_FALSE(table.given("train_params.seed"));
  EXPECT_EQ(table.where("train_params.learning_rate"), "run.yaml:4");
}

TEST_F(Options, OddYamlThatMeansTheSame) {
  yaml("# comment\n\ntrain_params: {batch_size: 1_000, learning_rate: .5, optimizer: 1, recompute: 2}\nmemory: 2GiB\n");
  EXPECT_EQ(s.batch_size, 1000);
  EXPECT_EQ(s.learning_rate, 0.5);
  EXPECT_EQ(s.optimizer, Kind::kAdafactor);
  EXPECT_EQ(s.recompute, Recompute::kMlp);
  EXPECT_EQ(s.memory, std::int64_t{2} << 30);
  yaml("train_params.batch_size: \"64\"\r\n? train_params\r\n: context_len: 1e3\r\n");
  EXPECT_EQ(s.batch_size, 64);
  EXPECT_EQ(s.context_len, 1000);
  yaml("train_params:\n  learning_rate: ~\n  recompute:\n  seed: 18446744073709551615\n  micro_batch: auto\n");
  EXPECT_FALSE(s.learning_rate.has_value());
  EXPECT_FALSE(s.recompute.has_value());
  EXPECT_EQ(s.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(s.micro_batch, 0);
  yaml("train_params: {batch_size: &b 7, context_len: *b}");
  EXPECT_EQ(s.context_len, 7);
  for (const char* nothing : {"", "\n", "---\n", "# only a comment", "{}", "train_params:\n", "train_params: {}\n"})
    EXPECT_NO_THROW(yaml(nothing)) << nothing;
}

TEST_F(Options, WrongValuesNameFileLineKeyValueAndExpectation) {
  rejects("train_params:\n  batch_size: many\n",
          "run.yaml:2: train_params.batch_size = \"many\", expected a whole number from 1 to 1048576");
  rejects("train_params:\n  seed: 1\n  batch_size: 0\n", "run.yaml:3: train_params.batch_size = \"0\"");
  rejects("train_params: {batch_size: 2.5}", "batch_size = \"2.5\"");
  rejects("train_params: {batch_size: 1e30}", "batch_size = \"1e30\"");
  rejects("train_params: {batch_size: 1__0}", "batch_size = \"1__0\"");
  rejects("train_params: {batch_size: _1}", "batch_size");
  rejects("train_params: {batch_size: }", "train_params.batch_size = nothing, expected");
  rejects("train_params: {batch_size: [1]}", "batch_size = a list, expected a whole number");
  rejects("train_params: {batch_size: {a: 1}}", "batch_size = a map, expected a whole number");
  rejects("train_params: {context_len: 9223372036854775808}", "context_len");
  rejects("train_params: {seed: -1}", "seed = \"-1\"");
  rejects("train_params: {seed: 18446744073709551616}", "seed");
  rejects("train_params: {learning_rate: 0}", "expected a number above 0");
  rejects("train_params: {learning_rate: nan}", "\"nan\"");
  rejects("train_params: {learning_rate: 1e999}", "\"1e999\"");
  rejects("train_params: {learning_rate: 6e-5x}", "\"6e-5x\"");
  rejects("train_params: {optimizer: sgd}", "optimizer = \"sgd\", expected adamw, adafactor");
  rejects("train_params: {optimizer: 2}", "optimizer = \"2\"");
  rejects("train_params: {recompute: 4}", "expected none, act, mlp, block, auto");
  rejects("train_params: {warmup_steps: -1}", "expected a whole number of at least 0, auto");
  rejects("model: {tie_embeddings: maybe}", "expected true or false");
  rejects("memory: 10B", "expected a size");
  rejects("memory: 1.0005k", "expected a size");
  EXPECT_EQ(s.batch_size, 16) << "a rejected value was kept";
}

TEST_F(Options, FilesThatAreNoConfiguration) {
  rejects("train_params:\n  batch_size: 1\n  batch_size: 2\n",
          "run.yaml:3: train_params.batch_size = \"2\" is given twice, first in run.yaml:2");
  rejects("train_params: {seed: 1}\ntrain_params.seed: 2\n", "run.yaml:2: train_params.seed = \"2\" is given twice");
  rejects("train_params: 5", "run.yaml:1: train_params is a section");
  rejects("train_params: [1, 2]", "is a section");
  rejects("- 1\n- 2\n", "expected sections and keys");
  rejects("hello", "expected sections and keys");
  rejects(",\nthreads: 1\n", "run.yaml:1: ");
  rejects("threads: 1\n,\n", "run.yaml:2: ");
  rejects("threads: 1\n...\nx\n", "run.yaml:3: ");
  rejects("train_params: &a {seed: 1}\nmodel: *a\n", "run.yaml:2: an alias of a map");
  rejects("a: 1\n---\nb: 2\n", "run.yaml:2: a second YAML document");
  rejects("train_params:\n\tbatch_size: 1\n", "run.yaml:2: ");
  rejects("train_params: {batch_size: 1", "run.yaml:");
  rejects("train_params: {batch_size: *none}", "run.yaml:1: ");
  rejects("? [1, 2]\n: 3\n", "a key that is no word");
  rejects(std::string(100000, '['), "run.yaml:");
  rejects("out: x", "out is only a flag: --out");
  expect_error([&] { table.load("/nowhere/run.yaml"); }, "/nowhere/run.yaml");
}

TEST_F(Options, UnknownKeysNameTheNearest) {
  rejects("train_params:\n  batch_sise: 1\n",
          "run.yaml:2: unknown key train_params.batch_sise; the nearest known one is train_params.batch_size");
  rejects("train_param:\n  batch_size: 1\n", "run.yaml:1: unknown key train_param; the nearest known one is train_params");
  rejects("batch_size: 1\n", "nearest known one is train_params.batch_size");
  rejects("a: &a {b: *a, c: [*a, {d: 1}]}\nthreads: 1\n", "run.yaml:1: unknown key a");
  rejects_args({"train_params.lerning_rate=1"},
               "unknown key train_params.lerning_rate; the nearest known one is train_params.learning_rate");
  rejects_args({"optim.seed=1"}, "nearest known one is train_params.seed");
  rejects_args({"--bacth-size", "1"}, "unknown flag --bacth-size; the nearest known one is --batch-size");
  rejects_args({"--batch_size=1"}, "unknown flag --batch_size; the nearest known one is --batch-size");
  rejects_args({"--halp"}, "--help");
  rejects_args({"-x"}, "unknown flag -x");
  rejects_args({"--no-threads"}, "unknown flag --no-threads");
}

TEST_F(Options, Arguments) {
  const Arguments a = args({"file.txt", "--threads", "2", "--batch-size=8", "train_params.seed=3", "--json", "--config", "a.yaml",
                            "--config=b.yaml", "--grad-clip", "1e-1", "dir/x=y", "-", "--", "--threads", "k=v"});
  EXPECT_EQ(s.threads, 2);
  EXPECT_EQ(s.batch_size, 8);
  EXPECT_EQ(s.seed, 3u);
  EXPECT_EQ(s.clip, 0.1);
  EXPECT_TRUE(s.json);
  EXPECT_FALSE(a.help);
  EXPECT_EQ(a.configs, (std::vector<std::string>{"a.yaml", "b.yaml"}));
  EXPECT_EQ(a.positionals, (std::vector<std::string>{"file.txt", "dir/x=y", "-", "--threads", "k=v"}));
  EXPECT_EQ(table.where("threads"), "--threads");
  EXPECT_EQ(table.where("train_params.seed"), "train_params.seed");
  EXPECT_TRUE(table.split({"-h"}).help);
  args({"--no-json", "--threads", "3", "--threads=4", "--prompt=--x", "--tie-embeddings"});
  EXPECT_FALSE(s.json);
  EXPECT_EQ(s.threads, 4) << "the last one wins";
  EXPECT_EQ(s.prompt, "--x");
  EXPECT_EQ(s.tie, true);
  args({"--json=yes", "--prompt", "-1 a=b", "--no-tie-embeddings"});
  EXPECT_TRUE(s.json);
  EXPECT_EQ(s.prompt, "-1 a=b");
  args({"--prompt="});
  EXPECT_EQ(s.prompt, "");
  EXPECT_EQ(s.tie, false);
}

TEST_F(Options, WrongArguments) {
  rejects_args({"--threads", "zwei"}, "--threads = \"zwei\", expected a whole number of at least 1, auto");
  rejects_args({"--threads=-3"}, "--threads = \"-3\"");
  rejects_args({"train_params.batch_size=x"}, "train_params.batch_size = \"x\", expected a whole number");
  rejects_args({"--threads"}, "--threads needs a value");
  rejects_args({"--threads", "--json"}, "--threads needs a value");
  rejects_args({"--config"}, "--config needs a value");
  rejects_args({"--json=perhaps"}, "--json = \"perhaps\", expected true or false");
  rejects_args({"--no-json=1"}, "--no-json takes no value");
  rejects_args({"out=x"}, "out is only a flag: --out");
}

TEST_F(Options, NothingIsDroppedInSilence) {
  rejects_args({"--help=1"}, "--help takes no value, got \"1\"");
  rejects_args({""}, "argument 1 that is no flag is empty");
  rejects_args({"a", "--", ""}, "argument 2 that is no flag is empty");
  rejects_args({"--config="}, "--config = \"\", expected a path");
  rejects_args({"--bogus"}, "unknown flag --bogus; --help lists them");
  rejects_args({"threads.x=1"}, "unknown key threads.x");
  rejects_args({"model=1"}, "model is a section, expected one of its keys, such as model.tie_embeddings");
  const Arguments two = table.split({"a", "b"});
  EXPECT_NO_THROW(limit_positionals(two, "plan", 2));
  expect_error([&] { limit_positionals(two, "plan", 1); }, "plan: unexpected argument 'b'", ErrorCode::kUsage);
}

TEST_F(Options, APathIsNeverEmpty) {
  std::string data;
  table.add({.key = "data.path", .field = &data, .flag = "--data", .path = true});
  rejects_args({"--data", ""}, "--data = \"\", expected a path");
  rejects_args({"--data="}, "--data = \"\", expected a path");
  rejects_args({"data.path="}, "data.path = \"\", expected a path");
  yaml("data: {path: \"\"}");  // as files of before have it: none
  EXPECT_EQ(table.to_yaml().find("path:"), std::string::npos);
  table.set({.option = table.options().size() - 1, .value = "x", .where = "--data"});
  EXPECT_NE(table.to_yaml().find("path: x"), std::string::npos);
}

TEST_F(Options, LimitsAreTold) {
  double beta = 0.9;
  table.add({.key = "beta", .field = &beta, .min = 0, .max = 1, .below_max = true});
  for (const char* one : {"1", "2", "-1"}) rejects_args({"--beta", one}, "expected a number of at least 0, below 1");
  args({"--beta", "0.99"});
  EXPECT_EQ(beta, 0.99);
  rejects_args({"--context-len", "9223372036854775808"}, "expected a whole number from 1 to 9223372036854775807");
  rejects_args({"--seed", "-18446744073709551616"}, "expected a whole number from 0 to 18446744073709551615");
  rejects_args({"--seed", "x"}, "expected a whole number");
}

TEST_F(Options, BooleansAsYaml11HasThem) {
  int auto_yes_no = -1;
  table.add({.key = "model.tie", .field = choice(auto_yes_no), .words = {{"auto", -1}, {"no", 0}, {"yes", 1}}});
  for (const char* yes : {"true", "True", "TRUE", "yes", "On", "ON", "1"}) {
    yaml(std::string("model: {tie_embeddings: ") + yes + ", tie: " + yes + "}");
    EXPECT_EQ(s.tie, true) << yes;
    EXPECT_EQ(auto_yes_no, 1) << yes;
    yaml("model: {tie_embeddings: OFF, tie: False}");
    EXPECT_EQ(s.tie, false);
    EXPECT_EQ(auto_yes_no, 0);
  }
  yaml("model: {tie: auto}");
  EXPECT_EQ(auto_yes_no, -1);
  rejects("model: {tie_embeddings: tRUE}", "expected true or false");
  rejects("model: {tie: maybe}", "expected auto, no, yes");
  rejects("train_params: {optimizer: yes}", "expected adamw, adafactor");
}

TEST_F(Options, AFlagThatMayStandAlone) {
  args({"--resume"});
  EXPECT_EQ(s.resume, "latest");
  args({"--resume", "auto"});
  EXPECT_EQ(s.resume, "auto");
  args({"--resume", "--json"});
  EXPECT_EQ(s.resume, "latest");
  args({"--resume=runs/a"});
  EXPECT_EQ(s.resume, "runs/a");
  args({"--resume", "threads=2"});
  EXPECT_EQ(s.resume, "latest");
  EXPECT_EQ(s.threads, 2);
}

TEST_F(Options, ArgumentsWinOverFilesAndReapplyOverPresets) {
  const Arguments a = table.split({"--batch-size", "3"});
  yaml("train_params: {batch_size: 5, context_len: 77}");
  table.apply(a);
  EXPECT_EQ(s.batch_size, 3);
  s.batch_size = 1000;  // a preset
  s.context_len = 1000;
  s.memory = 1000;
  table.reapply();
  EXPECT_EQ(s.batch_size, 3);
  EXPECT_EQ(s.context_len, 77);
  EXPECT_EQ(s.memory, 1000);
}

TEST_F(Options, TheSavedFileReadsBack) {
  s.name = "a \"b\": #c\n\xc3\xbc ~";
  args({"--learning-rate", "6e-5", "--recompute", "act", "--memory", "16M", "--seed", "18446744073709551615", "--grad-clip", "0.1"});
  const std::string saved = table.to_yaml();
  const Settings before = s;
  s = Settings();
  table.load_text(saved, "saved");
  EXPECT_EQ(table.to_yaml(), saved);
  EXPECT_EQ(s.name, before.name);
  EXPECT_EQ(s.learning_rate, 6e-5);
  EXPECT_EQ(s.recompute, Recompute::kAct);
  EXPECT_EQ(s.memory, 16000000);
  EXPECT_EQ(s.seed, before.seed);
  EXPECT_EQ(s.clip, 0.1);
  EXPECT_EQ(saved.find("out:"), std::string::npos);
  EXPECT_EQ(saved.find("tie_embeddings"), std::string::npos) << "absent, and without a word for it";
  for (const char* text : {"",  "null", "~",    "-", "- a", "true", "1", "a: b", "*x", "&x", "!t", "%",
                           "@", "`",    "a\\b", "'", " x ", "\t",   ".", "[a]",  "{",  "|",  ">"}) {
    s.name = text;
    const std::string yaml_text = table.to_yaml();
    s.name = "other";
    table.load_text(yaml_text, "saved");
    EXPECT_EQ(s.name, text);
  }
}

TEST_F(Options, TheSavedFileLooksLikeThis) {
  EXPECT_EQ(
      table.to_yaml(),
      "train_params:\n  batch_size: 16\n  context_len: 1024\n  micro_batch: auto\n  optimizer: adamw\n  recompute: auto\n  grad_clip: 1\n"
      "  warmup_steps: auto\n  seed: 1\nmodel:\n  name: \"\"\nthreads: auto\nmemory: 1048576\n");
}

TEST_F(Options, Help) {
  const std::string help = table.help(80);
  EXPECT_NE(help.find("Training (train_params):\n  --batch-size N                rows of an optimizer step [16]\n"), std::string::npos)
      << help;
  EXPECT_NE(help.find("  --optimizer adamw|adafactor   which [adamw]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("  --recompute none|act|mlp|block|auto\n                                what is computed again"), std::string::npos)
      << help;
  EXPECT_NE(help.find("--[no-]json"), std::string::npos);
  EXPECT_NE(help.find("--resume[=TEXT]"), std::string::npos);
  EXPECT_NE(help.find("--memory SIZE"), std::string::npos);
  std::size_t start = 0;
  for (std::size_t end; (end = help.find('\n', start)) != std::string::npos; start = end + 1)
    EXPECT_LE(end - start, 80u) << help.substr(start, end - start);
}

TEST_F(Options, TheTableChecksItself) {
  std::int64_t x = 0;
  expect_error([&] { table.add({.key = "threads", .field = &x}); }, "twice");
  expect_error([&] { table.add({.key = "model.threads", .field = &x}); }, "flag --threads");
  expect_error([&] { table.add({.key = "config", .field = &x}); }, "flag --config");
  expect_error([&] { table.add({.key = "a b", .field = &x}); }, "option key");
  EXPECT_NO_THROW(table.add({.key = "infer.threads", .field = &x, .flag = "--infer-threads"}));
}

TEST(OptionValues, Sizes) {
  EXPECT_EQ(parse_size("16M"), 16e6);
  EXPECT_EQ(parse_size("1.5k"), 1500);
  EXPECT_EQ(parse_size("1.1k"), 1100);
  EXPECT_EQ(parse_size("16 MiB"), 16777216);
  EXPECT_EQ(parse_size("3GB"), 3e9);
  EXPECT_EQ(parse_size("1TiB"), 1099511627776.0);
  EXPECT_EQ(parse_size("1_024"), 1024);
  for (const char* bad : {"", "M", "B", "1B", "iB", "5iB", "2Gi", "1 2M", "xM", "1MM"}) EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(OptionValues, Numbers) {
  EXPECT_EQ(parse_whole("+5"), 5);
  EXPECT_EQ(parse_whole("1e5"), 100000);
  EXPECT_EQ(parse_whole("-9223372036854775808"), -9223372036854775808.0L);
  for (const char* bad : {"", "+", "+-5", "--5", "0x10", "1.5", "5 ", " 5", "1e99", "1_", "_1", "1_.5"})
    EXPECT_FALSE(parse_whole(bad)) << bad;
  EXPECT_EQ(parse_real("6e-5"), 6e-5);
  EXPECT_EQ(parse_real("1_000.5"), 1000.5);
  for (const char* bad : {"inf", "nan", "-inf", "1e999", "0x1p3", "1,5", ""}) EXPECT_FALSE(parse_real(bad)) << bad;
  EXPECT_EQ(real_text(0.1), "0.1");
  EXPECT_EQ(real_text(6e-5), "6e-05");
}

TEST(Nearest, CountsEdits) {
  const std::vector<std::string> commands{"train", "generate", "eval", "plan"};
  EXPECT_EQ(nearest("trian", commands), "train");
  EXPECT_EQ(nearest("genrate", commands), "generate");
  EXPECT_EQ(nearest("plane", commands), "plan");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(similar("trian", commands), "train");
  EXPECT_EQ(similar("--plam", {"--plan"}), "--plan");
  for (const char* far : {"bogus", "x", "", "--bogus"}) EXPECT_EQ(similar(far, commands), "") << far;
  EXPECT_EQ(similar(std::string(1000000, 'x'), commands), "");
  EXPECT_EQ(similar("x", {}), "");
  EXPECT_EQ(nearest(std::string(1000000, 'x'), {"a"}), "a");
}

}  // namespace
}  // namespace flashgpt
