// `data prepare` on formats, duplicates, long documents, and after a stop.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "data/hold_out.h"
#include "data/prepare.h"
#include "data/prepare_state.h"
#include "data/temporary_folder.h"
#include "flashgpt/error.h"

namespace flashgpt::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

PrepareOptions options_of(const TemporaryFolder& folder, std::vector<std::string> inputs) {
  return {.inputs = std::move(inputs), .out = folder.path("out"), .val_fraction = 0, .threads = 2};
}

Texts texts_of(const TokenStream& stream) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(stream.size()));
  if (!ids.empty()) stream.copy(0, stream.size(), ids.data());
  Texts texts;
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

// Every file of a folder with its bytes.
std::vector<std::pair<std::string, std::string>> contents(const TemporaryFolder& folder, const std::string& name) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& e : fs::directory_iterator(folder.path(name)))
    out.emplace_back(e.path().filename().string(), folder.read(name + "/" + e.path().filename().string()));
  std::sort(out.begin(), out.end());
  return out;
}

TEST(PrepareSources, JsonLinesBesideText) {
  const TemporaryFolder folder;
  folder.file("in/a.jsonl",
              "{\"text\": \"one\"}\n{\"text\": \"two\"}\nbroken\n{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"漢字\"}\n");
  folder.file("in/b.txt", "two");
  folder.file("in/c.txt", "three");
  PrepareOptions options = options_of(folder, {folder.path("in")});
  const PrepareReport report = prepare(options);
  EXPECT_EQ(texts_of(Dataset::open(options.out).train()), (Texts{"one", "two", "漢字", "three"}));
  EXPECT_EQ(skipped(report, "duplicates"), 2);
  EXPECT_EQ(skipped(report, "lines that are no JSON"), 1);
  EXPECT_EQ(skipped(report, "lines with empty text"), 1);
  EXPECT_NE(summary(report).find("a.jsonl:3"), std::string::npos) << summary(report);

  const Json meta = Json::parse(folder.read("out/meta.json"))["report"];
  EXPECT_EQ(meta["files"], 3);
  EXPECT_EQ(meta["documents"], 4);
  EXPECT_EQ(meta["lengths"]["shortest"], 3);
  EXPECT_EQ(meta["lengths"]["longest"], 6);
  EXPECT_EQ(meta["lengths"]["histogram"][0]["documents"], 2);  // 2 and 3
  EXPECT_EQ(meta["lengths"]["histogram"][1]["tokens"], 11);    // 4 to 7
  EXPECT_EQ(meta["bytes_per_token"], 1.0);
  EXPECT_EQ(meta["skipped"].size(), 3u);

  options.deduplicate = false;
  EXPECT_EQ(prepare(options).info.train.documents, 6);
  options.text_key = "";
  EXPECT_NE(error_of([&] { prepare(options); }).find("text_key"), std::string::npos);
  options.text_key = "body";
  options.inputs = {folder.path("in/a.jsonl")};
  EXPECT_NE(error_of([&] { prepare(options); }).find("5 lines without text under \"body\""), std::string::npos);
}

TEST(PrepareSources, ChaptersBecomeDocuments) {
  const TemporaryFolder folder;
  std::string book = "A BOOK\n\n";
  for (int i = 1; i <= 9; ++i) book += "Chapter " + std::to_string(i) + "\n\n" + random_text(static_cast<std::uint32_t>(i), 3000) + "\n\n";
  PrepareOptions options = options_of(folder, {folder.file("book.txt", book), folder.file("short.txt", "Chapter 1\n\nshort\n")});
  options.split = SplitMode::kChapters;
  options.max_document = 4000;
  Texts cuts;
  options.on_cut = [&](const std::string& document, const Cut& cut) {
    EXPECT_EQ(document, folder.path("book.txt"));
    EXPECT_EQ(book.substr(static_cast<std::size_t>(cut.offset), cut.title.size()), cut.title);
    cuts.emplace_back(cut.title);
  };
  PrepareReport report = prepare(options);
  EXPECT_EQ(report.info.train.documents, 10);
  EXPECT_EQ(report.source_documents, 2);
  EXPECT_EQ(cuts.size(), 8u);
  const Texts texts = texts_of(Dataset::open(options.out).train());
  std::string all;
  for (int i = 0; i < 9; ++i) {
    all += texts[static_cast<std::size_t>(i)];
    const std::string head = i == 0 ? "A BOOK\n\nC" : "Chapter " + std::to_string(i + 1);
    EXPECT_EQ(texts[static_cast<std::size_t>(i)].substr(0, 9), head);
  }
  EXPECT_EQ(all, book);

  // Validation begins with a chapter, and cuts tell the bytes of the book, not of the part.
  options.val_fraction = 0.3;
  options.inputs = {folder.path("book.txt")};
  cuts.clear();
  report = prepare(options);
  EXPECT_TRUE(report.ends_held_out);
  EXPECT_EQ(texts_of(Dataset::open(options.out).val())[0].substr(0, 8), "Chapter ");
  EXPECT_EQ(cuts.size(), 7u);

  // A dry run tells the same and writes nothing.
  fs::remove_all(options.out);
  const Texts first = std::exchange(cuts, {});
  options.dry_run = true;
  const PrepareReport dry = prepare(options);
  EXPECT_EQ(cuts, first);
  EXPECT_FALSE(fs::exists(options.out));
  EXPECT_EQ(dry.info.train.documents, report.info.train.documents);
  EXPECT_EQ(dry.info.val.text_bytes, report.info.val.text_bytes);
  EXPECT_EQ(dry.lengths.longest, report.lengths.longest);  // a token is a byte
  EXPECT_NE(summary(dry).find("nothing was written"), std::string::npos);

  options.dry_run = false;
  options.on_cut = {};
  options.val_fraction = 0;
  options.split = SplitMode::kFixed;
  EXPECT_EQ(prepare(options).lengths.longest, 4000);
  options.max_document = 5;
  EXPECT_NE(error_of([&] { prepare(options); }).find("max_document = 5"), std::string::npos);
}

// A call that is killed, in any place, and called again leaves the bytes of one that never was.
TEST(PrepareSources, KilledAndCalledAgain) {
  const TemporaryFolder folder;
  for (std::uint32_t i = 0; i < 60; ++i) folder.file("in/" + std::to_string(100 + i) + ".txt", random_text(i, 20000));
  PrepareOptions options = options_of(folder, {folder.path("in")});
  options.shard_tokens = 250000;
  options.val_fraction = 0.2;
  options.split = SplitMode::kFixed;
  options.max_document = 3000;
  options.out = folder.path("whole");
  prepare(options);

  options.out = folder.path("out");
  for (const int stop : {1, 40, 59}) {
    const pid_t child = fork();
    if (child == 0) {
      PrepareOptions mine = options;
      mine.threads = 1;
      int calls = 0;
      mine.progress = [&](std::int64_t, std::int64_t) {
        if (++calls > stop) kill(getpid(), SIGKILL);
      };
      prepare(mine);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(fs::exists(folder.path("out/meta.json")));
    EXPECT_NE(error_of([&] { Dataset::open(options.out); }), "");
    EXPECT_TRUE(read_prepare_state(options.out, 0).train.shards.empty());  // another fingerprint
  }
  const PrepareReport report = prepare(options);
  EXPECT_GE(report.resumed_shards, 1);
  EXPECT_NE(summary(report).find("gone on"), std::string::npos);
  EXPECT_TRUE(contents(folder, "out") == contents(folder, "whole"));
  EXPECT_EQ(prepare(options).resumed_shards, 0);  // when it was whole, all is made anew
}

TEST(PrepareSources, NeverGoesOnWithWhatDoesNotFit) {
  const TemporaryFolder folder;
  for (std::uint32_t i = 0; i < 30; ++i) folder.file("in/" + std::to_string(100 + i) + ".txt", random_text(i, 50000));
  PrepareOptions options = options_of(folder, {folder.path("in")});
  options.shard_tokens = 500000;
  const auto stopped = [&] {
    fs::remove_all(options.out);
    PrepareOptions mine = options;
    int calls = 0;
    mine.progress = [&](std::int64_t, std::int64_t) {
      if (++calls == 29) fail("stopped");
    };
    EXPECT_EQ(error_of([&] { prepare(mine); }), "stopped");
    EXPECT_TRUE(fs::exists(folder.path("out/prepare.json")));
  };
  stopped();
  EXPECT_GE(prepare(options).resumed_shards, 1);

  stopped();  // a damaged shard
  std::string shard = folder.read("out/train-00000.shard");
  shard[100] ^= 1;
  folder.file("out/train-00000.shard", shard);
  EXPECT_EQ(prepare(options).resumed_shards, 0);
  EXPECT_EQ(Dataset::open(options.out).info().train.documents, 30);

  stopped();  // a missing one
  fs::remove(folder.path("out/train-00000.shard"));
  EXPECT_EQ(prepare(options).resumed_shards, 0);

  stopped();  // a state that is cut short
  folder.file("out/prepare.json", folder.read("out/prepare.json").substr(0, 50));
  EXPECT_EQ(prepare(options).resumed_shards, 0);

  stopped();  // other text
  folder.file("in/129.txt", "changed");
  EXPECT_EQ(prepare(options).resumed_shards, 0);

  stopped();  // another way to cut
  options.split = SplitMode::kFixed;
  EXPECT_EQ(prepare(options).resumed_shards, 0);
  EXPECT_EQ(contents(folder, "out").size(), Dataset::open(options.out).info().train.shards.size() + 3);
}

TEST(PrepareSources, AFileThatChangesMeanwhile) {
  const TemporaryFolder folder;
  const std::string a = folder.file("in/a.txt", random_text(1, 5000)), b = folder.file("in/b.txt", random_text(2, 5000));
  PrepareOptions options = options_of(folder, {folder.path("in")});
  for (const std::string& text : {random_text(3, 5000), random_text(2, 4000), std::string(), std::string("a\0b", 3)}) {
    folder.file("in/b.txt", random_text(2, 5000));
    options.progress = [&](std::int64_t, std::int64_t) { folder.file("in/b.txt", text); };
    EXPECT_NE(error_of([&] { prepare(options); }).find("b.txt changed while it was read"), std::string::npos);
    EXPECT_FALSE(fs::exists(folder.path("out/meta.json")));
  }
}

}  // namespace
}  // namespace flashgpt::testing
