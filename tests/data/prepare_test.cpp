#include "data/prepare.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <utility>

#include "data/loader.h"
#include "data/temporary_folder.h"
#include "flashgpt/error.h"

namespace flashgpt::testing {
namespace {

namespace fs = std::filesystem;

PrepareOptions options_of(const TemporaryFolder& folder, std::vector<std::string> inputs) {
  return {.inputs = std::move(inputs), .out = folder.path("out")};
}

// The documents of a stream.
std::vector<std::string> texts_of(const TokenStream& stream) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(stream.size()));
  if (!ids.empty()) stream.copy(0, stream.size(), ids.data());
  std::vector<std::string> texts;
  std::string text;
  for (std::int32_t id : ids) {
    if (id == stream.end_of_text())
      texts.push_back(std::exchange(text, ""));
    else
      text += static_cast<char>(id);
  }
  return texts;
}

std::int64_t skipped(const PrepareReport& r, const std::string& reason) {
  for (const Skipped& s : r.skipped)
    if (s.reason == reason) return s.files;
  return 0;
}

std::string random_text(std::uint32_t seed, std::size_t size) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < size) text += random() % 8 == 0 ? '\n' : static_cast<char>('a' + random() % 26);
  return text;
}

TEST(Prepare, ManyDocumentsAreHeldOutWhole) {
  const TemporaryFolder folder;
  std::vector<std::string> all;
  for (std::uint32_t i = 0; i < 400; ++i)
    folder.file("in/" + std::to_string(i % 7) + "/" + std::to_string(i) + ".txt", all.emplace_back(random_text(i, 50 + i)));
  PrepareOptions options = options_of(folder, {folder.path("in")});
  options.val_fraction = 0.1;
  options.shard_tokens = 10000;
  const PrepareReport report = prepare(options);
  EXPECT_FALSE(report.ends_held_out);
  EXPECT_EQ(report.info.train.documents + report.info.val.documents, 400);
  EXPECT_GT(report.info.val.documents, 15);
  EXPECT_LT(report.info.val.documents, 80);
  EXPECT_GT(report.info.train.shards.size(), 5u);

  const Dataset data = Dataset::open(options.out);
  std::vector<std::string> got = texts_of(data.train());
  for (std::string& t : texts_of(data.val())) got.push_back(std::move(t));
  EXPECT_EQ(report.info.train.tokens, data.train().size());
  EXPECT_EQ(report.info.val.tokens, data.val().size());
  std::sort(got.begin(), got.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(got, all);
  EXPECT_EQ(data.info().checksum(), report.info.checksum());

  // The same again, from another place: the same shards.
  fs::rename(folder.path("in"), folder.path("moved"));
  options.inputs = {folder.path("moved")};
  options.out = folder.path("again");
  EXPECT_EQ(prepare(options).info.checksum(), report.info.checksum());
}

TEST(Prepare, EqualFilesFallOnOneSide) {
  const TemporaryFolder folder;
  for (std::uint32_t i = 0; i < 200; ++i)
    for (const char* copy : {"a", "b"}) folder.file(std::string("in/") + copy + std::to_string(i), random_text(i, 100));
  PrepareOptions options = options_of(folder, {folder.path("in")});
  options.val_fraction = 0.2;
  ASSERT_FALSE(prepare(options).ends_held_out);
  const Dataset data = Dataset::open(options.out);
  const auto train = texts_of(data.train());
  for (const std::string& text : texts_of(data.val())) EXPECT_EQ(std::count(train.begin(), train.end(), text), 0);
}

TEST(Prepare, FewDocumentsAreCutAtANewline) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + " of a text\n";
  const PrepareOptions options = options_of(folder, {folder.file("book.txt", text)});
  const PrepareReport report = prepare(options);
  EXPECT_TRUE(report.ends_held_out);
  const Dataset data = Dataset::open(options.out);
  const auto train = texts_of(data.train()), val = texts_of(data.val());
  ASSERT_EQ(train.size(), 1u);
  ASSERT_EQ(val.size(), 1u);
  EXPECT_EQ(train[0] + val[0], text);
  EXPECT_EQ(val[0].substr(0, 5), "line ");
  EXPECT_NEAR(static_cast<double>(val[0].size()) / static_cast<double>(text.size()), 0.05, 0.002);
}

TEST(Prepare, CutsBetweenCharactersWhereThereIsNoNewline) {
  const TemporaryFolder folder;
  for (int size = 2; size < 40; ++size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += "\xE6\xBC\xA2";  // three bytes
    PrepareOptions options = options_of(folder, {folder.file("zh.txt", text)});
    options.val_fraction = 0.3;
    prepare(options);
    const Dataset data = Dataset::open(options.out);
    ASSERT_EQ(texts_of(data.train())[0] + texts_of(data.val())[0], text);
    EXPECT_EQ(texts_of(data.val())[0].size() % 3, 0u) << size;
  }
}

TEST(Prepare, TinyTexts) {
  const TemporaryFolder folder;
  PrepareOptions options = options_of(folder, {folder.file("one.txt", "x")});
  EXPECT_NE(error_of([&] { prepare(options); }).find("val_fraction = 0"), std::string::npos);
  options.val_fraction = 0;
  prepare(options);
  {
    const Dataset data = Dataset::open(options.out);
    EXPECT_FALSE(data.has_val());
    EXPECT_EQ(texts_of(data.train()), std::vector<std::string>{"x"});
  }
  options.val_fraction = 0.05;
  options.inputs = {folder.file("two.txt", "xy")};
  prepare(options);
  const Dataset data = Dataset::open(options.out);
  EXPECT_EQ(texts_of(data.train()), std::vector<std::string>{"x"});
  EXPECT_EQ(texts_of(data.val()), std::vector<std::string>{"y"});

  // Files of one byte cannot be cut, but one of them can be held out.
  options.inputs = {folder.file("one.txt", "x"), folder.file("other.txt", "z")};
  prepare(options);
  EXPECT_EQ(Dataset::open(options.out).info().val.tokens, 2);
}

TEST(Prepare, LeavesOutWhatIsNoTextAndSaysSo) {
  const TemporaryFolder folder;
  folder.file("in/a.txt", "some text\nof two lines\n");
  folder.file("in/sub/deep/b.txt", "more\ntext\n");
  folder.file("in/empty.txt", "");
  folder.file("in/binary.bin", std::string("ab\0cd", 5));
  folder.file("in/.hidden", "secret");
  folder.file("in/.git/config", "secret");
  fs::create_directory_symlink(folder.path("in"), folder.path("in/loop"));
  fs::create_symlink(folder.path("nowhere"), folder.path("in/dangling"));
  mkfifo(folder.path("in/pipe").c_str(), 0600);  // reading it would never end
  fs::create_directory(folder.path("in/nothing"));
  const PrepareOptions options = options_of(folder, {folder.path("in"), folder.path("in/a.txt")});
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.info.train.documents, 2);
  EXPECT_EQ(report.info.train.text_bytes + report.info.val.text_bytes, 33);
  EXPECT_EQ(skipped(report, "empty"), 1);
  EXPECT_EQ(skipped(report, "binary"), 1);
  EXPECT_EQ(skipped(report, "hidden"), 2);
  EXPECT_EQ(skipped(report, "link"), 2);
  EXPECT_EQ(skipped(report, "not a regular file"), 1);
  EXPECT_EQ(skipped(report, "named twice"), 1);
  const std::string text = summary(report);
  EXPECT_NE(text.find("1 binary, such as " + folder.path("in/binary.bin")), std::string::npos) << text;
}

TEST(Prepare, UnreadableFiles) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const TemporaryFolder folder;
  folder.file("in/a.txt", "some text\n");
  chmod(folder.file("in/b.txt", "closed").c_str(), 0);
  EXPECT_EQ(skipped(prepare(options_of(folder, {folder.path("in")})), "not readable"), 1);
  EXPECT_NE(error_of([&] { prepare(options_of(folder, {folder.path("in/b.txt")})); }).find("b.txt"), std::string::npos);
}

TEST(Prepare, ErrorsNameTheInput) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& input) { return error_of([&] { prepare(options_of(folder, {input})); }); };
  EXPECT_NE(error(folder.path("missing.txt")).find("missing.txt"), std::string::npos);
  EXPECT_NE(error(folder.path("*.txt")).find("*.txt"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder.path("out")));
  EXPECT_NE(error(folder.file("empty.txt", "")).find("1 empty, such as"), std::string::npos);
  fs::create_directory(folder.path("bare"));
  EXPECT_NE(error(folder.path("bare")).find("it has no files"), std::string::npos);
  EXPECT_NE(error(folder.file("utf16.txt", std::string("a\0b\0", 4))).find("iconv"), std::string::npos);
  mkfifo(folder.path("pipe").c_str(), 0600);
  EXPECT_NE(error(folder.path("pipe")).find("neither a file nor a folder"), std::string::npos);
  EXPECT_NE(error("").find("empty path"), std::string::npos);
  EXPECT_NE(error_of([&] { prepare(options_of(folder, {})); }).find("no text given"), std::string::npos);
  for (double fraction : {-0.1, 0.9, std::nan("")}) {
    PrepareOptions options = options_of(folder, {folder.file("a.txt", "text\n")});
    options.val_fraction = fraction;
    EXPECT_NE(error_of([&] { prepare(options); }).find("val_fraction"), std::string::npos);
  }
}

TEST(Prepare, BinaryFilesWhenAskedFor) {
  const TemporaryFolder folder;
  const std::string bytes("ab\0cd\0\xff\xfe", 8);
  PrepareOptions options = options_of(folder, {folder.file("x.bin", bytes)});
  options.binary = true;
  options.val_fraction = 0;
  prepare(options);
  EXPECT_EQ(texts_of(Dataset::open(options.out).train()), std::vector<std::string>{bytes});
}

TEST(Prepare, PatternsAndFilters) {
  const TemporaryFolder folder;
  folder.file("in/a.c", "int a;\n");
  folder.file("in/b.h", "int b;\n");
  folder.file("in/c.txt", "text\n");
  folder.file("in/gen/d.h", "int d;\n");
  PrepareOptions options = options_of(folder, {folder.path("in/*.?")});
  options.val_fraction = 0;
  prepare(options);
  EXPECT_EQ(texts_of(Dataset::open(options.out).train()), (std::vector<std::string>{"int a;\n", "int b;\n"}));
  options.inputs = {folder.path("in")};
  options.filter = {.suffixes = {".c", ".h"}, .excludes = {"/gen/"}};
  prepare(options);
  EXPECT_EQ(texts_of(Dataset::open(options.out).train()), (std::vector<std::string>{"int a;\n", "int b;\n"}));
  options.filter = {};
  options.inputs = {folder.path("in/*")};  // a folder among the matches is searched
  EXPECT_EQ(prepare(options).info.train.documents, 4);
  options.inputs = {folder.file("in/odd[1].txt", "odd\n")};  // a name that looks like a pattern
  EXPECT_EQ(prepare(options).info.train.documents, 1);
}

TEST(Prepare, SampleIsBoundedAndFromEverywhere) {
  const TemporaryFolder folder;
  for (std::uint32_t i = 0; i < 300; ++i) folder.file("in/" + std::to_string(1000 + i), random_text(i, 200));
  PrepareOptions options = options_of(folder, {folder.path("in")});
  options.max_bytes = 10050;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.info.train.text_bytes + report.info.val.text_bytes, 10050);
  EXPECT_EQ(report.found_files, 300);
  // One huge file gives its beginning.
  const std::string text = random_text(7, 50000);
  options.inputs = {folder.file("huge.txt", text)};
  prepare(options);
  const Dataset data = Dataset::open(options.out);
  EXPECT_EQ(texts_of(data.train())[0] + texts_of(data.val())[0], text.substr(0, 10050));
}

TEST(Prepare, LongDocumentsAreEncodedInPieces) {
  const TemporaryFolder folder;
  const std::string text = random_text(3, 3500000);
  std::int64_t last = 0, calls = 0;
  PrepareOptions options = options_of(folder, {folder.file("long.txt", text)});
  options.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, static_cast<std::int64_t>(text.size()));
    EXPECT_GT(done, last);
    last = done;
    ++calls;
  };
  prepare(options);
  EXPECT_EQ(last, static_cast<std::int64_t>(text.size()));
  EXPECT_GE(calls, 4);
  const Dataset data = Dataset::open(options.out);
  EXPECT_TRUE(texts_of(data.train())[0] + texts_of(data.val())[0] == text);
}

TEST(Prepare, AgainIntoTheSameFolderThatLiesAmongTheInputs) {
  const TemporaryFolder folder;
  for (std::uint32_t i = 0; i < 20; ++i) folder.file("in/" + std::to_string(i), random_text(i, 100));
  PrepareOptions options = options_of(folder, {folder.path()});
  options.shard_tokens = 200;
  const PrepareReport first = prepare(options);
  const PrepareReport second = prepare(options);
  EXPECT_EQ(first.info.checksum(), second.info.checksum());
  EXPECT_EQ(skipped(second, "the output folder"), 1);
  options.shard_tokens = 1000000;  // fewer shards: those of before go
  folder.file("out/.train-00009.shard.tmp.123.0", "half");
  prepare(options);
  EXPECT_EQ(std::distance(fs::directory_iterator(options.out), fs::directory_iterator()), 5);  // train, val, tokenizer and its config, meta
}

TEST(Dataset, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  const auto open = [&] { return error_of([&] { Dataset::open(folder.path("out")); }); };
  EXPECT_NE(open().find("data prepare"), std::string::npos) << open();
  PrepareOptions options = options_of(folder, {folder.file("a.txt", random_text(1, 1000))});
  prepare(options);
  EXPECT_EQ(open(), "");

  // Another data set's shard in place of ours.
  PrepareOptions other = options_of(folder, {folder.file("b.txt", random_text(2, 1000))});
  other.out = folder.path("other");
  prepare(other);
  fs::copy_file(folder.path("other/train-00000.shard"), folder.path("out/train-00000.shard"), fs::copy_options::overwrite_existing);
  EXPECT_NE(open().find("train-00000.shard is not the shard"), std::string::npos) << open();
  fs::remove(folder.path("out/train-00000.shard"));
  EXPECT_NE(open().find("train-00000.shard"), std::string::npos) << open();

  prepare(options);
  std::string meta = folder.read("out/meta.json");
  folder.file("out/meta.json", meta.substr(0, meta.size() / 2));
  EXPECT_NE(open().find("meta.json"), std::string::npos) << open();
  folder.file("out/meta.json", "{}");
  EXPECT_NE(open().find("meta.json"), std::string::npos) << open();
  meta.replace(meta.find("\"version\": 1"), 12, "\"version\": 2");
  folder.file("out/meta.json", meta);
  EXPECT_NE(open().find("version 2, expected 1"), std::string::npos) << open();
}

// A vocabulary is learned from the text of training, the shards decode to the text, and the bytes of tokens add up to it.
TEST(Prepare, LearnsATokenizer) {
  const TemporaryFolder folder;
  std::string all;
  for (std::uint32_t i = 0; i < 60; ++i) {
    std::string text = std::to_string(i);  // equal documents are taken once
    for (std::uint32_t w = 0; w < 300; ++w) text += " word" + std::to_string((w * w + i) % 37) + (w % 11 ? "" : ".\n");
    folder.file("in/" + std::to_string(i) + ".txt", text);
    all += text;
  }
  PrepareOptions options = options_of(folder, {folder.path("in")});
  options.vocab_size = 280;
  PrepareReport report;
  std::uint64_t first = 0;
  for (const int threads : {1, 3}) {
    options.threads = threads;
    report = prepare(options);
    if (threads == 1) first = report.info.checksum();
  }
  EXPECT_EQ(report.info.checksum(), first);  // whatever the number of threads
  EXPECT_EQ(report.learned_bytes, report.learned_of);
  EXPECT_LT(report.learned_of, static_cast<std::int64_t>(all.size()));  // nothing of validation
  EXPECT_NE(summary(report).find("BPE llama3, 280 ids, learned from all "), std::string::npos) << summary(report);

  const Dataset data = Dataset::open(options.out);
  EXPECT_EQ(data.tokenizer().vocab_size(), 280);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.train().size()));
  data.train().copy(0, data.train().size(), ids.data());
  std::int64_t bytes = 0;
  std::string text;
  for (const std::int32_t id : ids) {
    bytes += data.train().text_bytes(id);
    text += data.tokenizer().decode(id);
    if (id == data.tokenizer().end_of_text()) {
      EXPECT_NE(all.find(text), std::string::npos);
      text.clear();
    }
  }
  EXPECT_EQ(bytes, data.info().train.text_bytes);
  EXPECT_LT(data.train().size() * 2, bytes);

  options.learn_bytes = 1 << 10;  // less than there is: says so, when a block is left out at all
  options.vocab_size = 270;
  report = prepare(options);
  EXPECT_LT(report.learned_bytes, report.learned_of);
  EXPECT_NE(summary(report).find(" of "), std::string::npos);
  options.vocab_size = 256;
  EXPECT_NE(error_of([&] { prepare(options); }).find("vocab_size = 256"), std::string::npos);
}

// Ids above 65,535 need four bytes each.
TEST(Prepare, WideShardsForALargeVocabulary) {
  const TemporaryFolder folder;
  folder.file("in.txt", random_text(1, 5000));
  Tokenizer::bytes().save(folder.path());
  std::string json = folder.read("tokenizer.json");
  json.replace(json.find("\"id\": 256"), 9, "\"id\": 66000");
  PrepareOptions options = options_of(folder, {folder.path("in.txt")});
  options.tokenizer = Tokenizer::parse(json, "T");
  EXPECT_EQ(options.tokenizer.vocab_size(), 66001);
  prepare(options);
  const Dataset data = Dataset::open(options.out);
  EXPECT_EQ(Shard::open(options.out + "/" + data.info().train.shards[0].file).info().token_width, 4);
  EXPECT_EQ(data.train().end_of_text(), 66000);
}

}  // namespace
}  // namespace flashgpt::testing
