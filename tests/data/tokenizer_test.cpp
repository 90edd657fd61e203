#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "data/temporary_folder.h"
#include "flashgpt/error.h"
#include "io/json.h"

namespace flashgpt::testing {
namespace {

TEST(Tokenizer, EveryByteGoesThereAndBack) {
  const Tokenizer t = Tokenizer::bytes();
  EXPECT_EQ(t.vocab_size(), 257);
  EXPECT_EQ(t.end_of_text(), 256);
  std::string text;
  for (int b = 0; b < 256; ++b) text += static_cast<char>(b);
  std::vector<std::int32_t> ids{7};
  t.encode(text, ids);
  ASSERT_EQ(ids.size(), 257u);
  EXPECT_EQ(ids[0], 7);  // appended
  std::string back;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i], static_cast<std::int32_t>(i) - 1);
    back += t.decode(ids[i]);
  }
  EXPECT_EQ(back, text);
  EXPECT_EQ(t.decode(256), "");
  EXPECT_THROW(t.decode(257), Error);
  EXPECT_THROW(t.decode(-1), Error);
  const std::vector<std::int32_t> bytes = t.token_bytes();
  EXPECT_EQ(bytes.size(), 257u);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[256], 0);
}

TEST(Tokenizer, TextThatNamesEndOfTextIsText) {
  std::vector<std::int32_t> ids;
  Tokenizer::bytes().encode("<|endoftext|>", ids);
  EXPECT_EQ(ids.size(), 13u);
}

TEST(Tokenizer, SavesAndLoads) {
  const TemporaryFolder folder;
  const Tokenizer t = Tokenizer::bytes();
  t.save(folder.path());
  const Tokenizer back = Tokenizer::load(folder.path());
  EXPECT_EQ(back.hash(), t.hash());
  EXPECT_EQ(back.name(), t.name());
  EXPECT_EQ(back.vocab_size(), 257);

  // The file is a tokenizer of Hugging Face: names of bytes as GPT-2 has them.
  const Json vocab = parse_json(folder.read("tokenizer.json"), "tokenizer.json").at("model").at("vocab");
  EXPECT_EQ(vocab.size(), 256u);
  EXPECT_EQ(vocab.at("A"), 'A');
  EXPECT_EQ(vocab.at("\""), '"');
  EXPECT_EQ(vocab.at("Ġ"), ' ');
  EXPECT_EQ(vocab.at("Ċ"), '\n');
  EXPECT_EQ(vocab.at("Ā"), 0);
  EXPECT_EQ(vocab.at("Ń"), 0xAD);
  EXPECT_EQ(vocab.at("ÿ"), 0xFF);
}

// The hash is part of the file formats: data prepared by one release must be taken by the next.
TEST(Tokenizer, HashStays) { EXPECT_EQ(Tokenizer::bytes().hash(), 0xc3c5a95b4721f93bu); }

TEST(Tokenizer, ErrorsSayWhatIsWrong) {
  const TemporaryFolder folder;
  const auto load = [&] { return error_of([&] { Tokenizer::load(folder.path()); }); };
  EXPECT_NE(load().find("tokenizer.json"), std::string::npos);
  folder.file("tokenizer.json", "{");
  EXPECT_NE(load().find("line 1"), std::string::npos) << load();
  folder.file("tokenizer.json", "{}");
  EXPECT_NE(load().find("normalizer is null"), std::string::npos) << load();

  Tokenizer::bytes().save(folder.path());
  std::string text = folder.read("tokenizer.json");
  text.replace(text.find("\"A\": 65"), 7, "\"A\": 66");
  folder.file("tokenizer.json", text);
  EXPECT_NE(load().find("id 66 stands for"), std::string::npos) << load();
}

}  // namespace
}  // namespace flashgpt::testing
