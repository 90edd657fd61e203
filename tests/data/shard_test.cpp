#include "data/shard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "data/temporary_folder.h"
#include "flashgpt/error.h"

namespace flashgpt::testing {
namespace {

std::string write_shard(const TemporaryFolder& folder, const std::vector<std::string>& documents, ShardInfo* info = nullptr) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  ShardWriter writer(folder.path("a.shard"), tokenizer.info());
  for (const std::string& text : documents) {
    std::vector<std::int32_t> ids;
    tokenizer.encode(text, ids);
    // In two pieces: a document may be longer than a piece.
    const std::span<const std::int32_t> all = ids;
    writer.append(all.first(ids.size() / 2), static_cast<std::int64_t>(ids.size() / 2));
    writer.append(all.subspan(ids.size() / 2), static_cast<std::int64_t>(ids.size() - ids.size() / 2));
    writer.end_document();
  }
  const ShardInfo written = writer.finish();
  if (info) *info = written;
  return folder.path("a.shard");
}

TEST(Shard, HoldsWhatWasWritten) {
  const TemporaryFolder folder;
  for (const std::vector<std::string>& documents :
       std::vector<std::vector<std::string>>{{}, {"x"}, {"ab", "c", std::string("d\0\xff", 3)}, {std::string(100000, 'z'), "y"}}) {
    ShardInfo written;
    const Shard shard = Shard::open(write_shard(folder, documents, &written));
    std::string all;
    std::vector<std::uint64_t> starts;
    for (const std::string& d : documents) {
      starts.push_back(all.size() + starts.size());
      all += d;
    }
    EXPECT_EQ(shard.info().documents, static_cast<std::int64_t>(documents.size()));
    EXPECT_EQ(shard.info().tokens, static_cast<std::int64_t>(all.size() + documents.size()));
    EXPECT_EQ(shard.info().text_bytes, static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(shard.info().tokenizer.vocab_size, 257);
    EXPECT_EQ(shard.info().tokenizer.end_of_text, 256);
    EXPECT_EQ(shard.info().tokenizer.name, "bytes");
    EXPECT_EQ(shard.info().tokenizer.hash, Tokenizer::bytes().hash());
    EXPECT_EQ(shard.info().checksum, written.checksum);
    EXPECT_EQ(shard.info().token_width, 2);
    const auto got = shard.document_starts();
    EXPECT_EQ(std::vector<std::uint64_t>(got.begin(), got.end()), starts);

    ASSERT_EQ(shard.tokens().count, shard.info().tokens);
    std::size_t at = 0;
    const auto* tokens = static_cast<const std::uint16_t*>(shard.tokens().data);
    for (const std::string& d : documents) {
      for (char c : d) ASSERT_EQ(tokens[at++], static_cast<unsigned char>(c));
      ASSERT_EQ(tokens[at++], 256);
    }
  }
}

TEST(Shard, AppearsOnlyWhenFinished) {
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder.path("a.shard"), Tokenizer::bytes().info());
    const std::int32_t id = 1;
    writer.append({&id, 1}, 1);
    EXPECT_THROW(writer.finish(), Error);  // a document is open
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Shard, RefusesIdsOutsideTheVocabulary) {
  const TemporaryFolder folder;
  ShardWriter writer(folder.path("a.shard"), Tokenizer::bytes().info());
  for (std::int32_t id : {-1, 257}) EXPECT_THROW(writer.append({&id, 1}, 0), Error);
}

// Every file cut short and every byte changed is an error that names the file; nothing crashes.
TEST(Shard, EveryTruncationIsAnError) {
  const TemporaryFolder folder;
  const std::string path = write_shard(folder, {"hello", "world"});
  const std::string whole = folder.read("a.shard");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    folder.file("a.shard", whole.substr(0, size));
    const std::string error = error_of([&] { Shard::open(path); });
    ASSERT_NE(error.find("a.shard"), std::string::npos) << size;
  }
  folder.file("a.shard", whole + "x");
  EXPECT_NE(error_of([&] { Shard::open(path); }).find("a.shard"), std::string::npos);
}

TEST(Shard, EveryChangedByteIsAnError) {
  const TemporaryFolder folder;
  const std::string path = write_shard(folder, {"hello", "world"});
  const std::string whole = folder.read("a.shard");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    folder.file("a.shard", changed);
    ASSERT_NE(error_of([&] { Shard::open(path); }).find("a.shard"), std::string::npos) << "byte " << i;
  }
}

TEST(Shard, ErrorsSayWhatToDo) {
  const TemporaryFolder folder;
  const auto open = [&] { return error_of([&] { Shard::open(folder.path("a.shard")); }); };
  folder.file("a.shard", "some text that is no shard at all");
  EXPECT_NE(open().find("data prepare"), std::string::npos) << open();
  folder.file("a.shard", "");
  EXPECT_NE(open().find("a.shard"), std::string::npos) << open();
  write_shard(folder, {"hello"});
  std::string text = folder.read("a.shard");
  text[8] = 9;
  folder.file("a.shard", text);
  EXPECT_NE(open().find("version 9, expected 1"), std::string::npos) << open();
}

TEST(Shard, WidthFollowsTheVocabulary) {
  EXPECT_EQ(token_width(257), 2);
  EXPECT_EQ(token_width(65536), 2);
  EXPECT_EQ(token_width(65537), 4);
}

}  // namespace
}  // namespace flashgpt::testing
