// Ids that Hugging Face's `tokenizers` gives (tests/data/tokenizers, written by bench/tokenizer_vs_hf.py), and what holds for any text.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "data/tokenizer.h"
#include "data/tokenizer/encode_stream.h"
#include "data/tokenizer/unicode.h"
#include "io/file.h"
#include "io/json.h"

namespace flashgpt::testing {
namespace {

const char* const kKinds[] = {"gpt2", "llama3", "qwen2", "qwen3.5", "llama2", "mistral"};

std::string fixture(const std::string& name) { return std::string(FLASHGPT_TOKENIZERS) + "/" + name; }

std::string decoded(const Tokenizer& t, std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) text += t.decode(id);
  return text;
}

// Words, spaces, newlines, characters of everywhere; with `bytes`, bytes that are no UTF-8 too.
std::string random_text(std::mt19937& random, std::size_t size, bool bytes) {
  const char* const words[] = {"the",
                               " the",
                               "'s",
                               "'RE",
                               "  ",
                               "\n",
                               "\r\n",
                               "\t",
                               "123",
                               "4",
                               "()",
                               ";\n\n",
                               "e\xCC\x81",
                               "\xC3\xA9",
                               "\xE4\xB8\xAD\xE6\x96\x87",
                               "\xE3\x80\x82",
                               "\xF0\x9F\x98\x80",
                               "\xE2\x96\x81",
                               " x",
                               "def ",
                               "= "};
  std::string text;
  while (text.size() < size) {
    const std::uint32_t kind = random() % 8;
    if (kind < 5) {
      text += words[random() % std::size(words)];
    } else if (kind < 7 || !bytes) {
      const std::uint32_t code = random() % (random() % 2 ? 0x3000 : kCodePoints);
      if (code < 0xD800 || code > 0xDFFF) append_utf8(text, code);
    } else {
      text += static_cast<char>(random());
    }
  }
  return text;
}

class TokenizerOf : public ::testing::TestWithParam<const char*> {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::parse(read_file(fixture(std::string(GetParam()) + ".json")), GetParam());
};

TEST_P(TokenizerOf, IdsAreThoseOfHuggingFace) {
  const Json cases = parse_json(read_file(fixture("cases")), "cases");
  const Json& lines = cases.at("lines");
  const Json& ids = cases.at("ids").at(GetParam());
  ASSERT_GE(lines.size(), 50u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::int32_t> mine;
    tokenizer_.encode(lines[i].get<std::string>(), mine, Specials::kParse);
    EXPECT_EQ(mine, ids[i].get<std::vector<std::int32_t>>()) << "line " << i << ": " << lines[i];
  }
}

// Word cache or not, in one piece or in many, on one thread or three: the same ids.
TEST_P(TokenizerOf, StreamsGiveTheIdsOfTheWhole) {
  std::mt19937 random(1);
  for (const bool bytes : {false, true}) {
    const std::string text = random_text(random, 300000, bytes);
    std::vector<std::int32_t> whole;
    tokenizer_.encode(text, whole);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads, false);
      std::vector<std::int32_t> ids;
      std::int64_t text_bytes = 0, ends = 0;
      EncodeStream stream(tokenizer_, pool, [&](std::span<const std::int32_t> piece, std::int64_t n, bool end, int) {
        ids.insert(ids.end(), piece.begin(), piece.end());
        text_bytes += n;
        ends += end;
      });
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t n = std::min<std::size_t>(1 + random() % 50000, text.size() - at);
        stream.append(std::string_view(text).substr(at, n), 0);
        at += n;
      }
      stream.end_document(0);
      stream.end_document(0);  // empty
      stream.finish();
      EXPECT_TRUE(ids == whole) << threads << " threads";
      EXPECT_EQ(text_bytes, static_cast<std::int64_t>(text.size()));
      EXPECT_EQ(ends, 1);
    }
  }
}

TEST_P(TokenizerOf, BytesComeBack) {
  std::mt19937 random(2);
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const TokenizerModel& m = tokenizer_.tables().model;
  for (int i = 0; i < 40; ++i) {
    const std::string text = i == 0 ? all : random_text(random, 500, true);
    std::vector<std::int32_t> ids;
    tokenizer_.encode(text, ids);
    std::string buffer, buffer2;
    // What the normalizer makes of it is what comes back.
    std::string expected(pre_tokenize(m, normalize(m, text, buffer), true, buffer2));
    for (std::size_t at = 0; m.meta_spaces != MetaSpaces::kNone && (at = expected.find(kMetaSpace, at)) != expected.npos;)
      expected.replace(at, kMetaSpace.size(), " ");
    EXPECT_EQ(decoded(tokenizer_, ids), expected);
  }
}

TEST_P(TokenizerOf, SpecialTokensAreParsedWhenAsked) {
  const std::string name(tokenizer_.tables().model.added.back().content);
  const std::int32_t id = tokenizer_.tables().model.added.back().id;
  std::vector<std::int32_t> text, parsed;
  tokenizer_.encode("a" + name + "b", text);
  tokenizer_.encode("a" + name + "b", parsed, Specials::kParse);
  EXPECT_EQ(std::count(text.begin(), text.end(), id), 0);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), id), 1);
  EXPECT_EQ(tokenizer_.decode(id), "");
  EXPECT_EQ(tokenizer_.token_bytes()[static_cast<std::size_t>(id)], 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerOf, ::testing::ValuesIn(kKinds), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '.');
  return name;
});

// All of it one word: cut by force, whole characters, in bounded pieces.
TEST(EncodeStream, OneLongWordIsCutByForce) {
  const Tokenizer t = Tokenizer::parse(read_file(fixture("gpt2.json")), "gpt2");
  std::string text;
  while (text.size() < EncodeStream::kLongest + 10000) text += "\xE4\xB8\xAD";
  ThreadPool pool(2, false);
  std::string back;
  std::int64_t longest = 0;
  EncodeStream stream(t, pool, [&](std::span<const std::int32_t> ids, std::int64_t n, bool, int) {
    back += decoded(t, ids);
    longest = std::max(longest, n);
    EXPECT_EQ(n % 3, 0);
  });
  for (std::size_t at = 0; at < text.size(); at += 1 << 20) stream.append(std::string_view(text).substr(at, 1 << 20), 0);
  stream.end_document(0);
  stream.finish();
  EXPECT_TRUE(back == text);
  EXPECT_LE(longest, static_cast<std::int64_t>(EncodeStream::kLongest));
}

}  // namespace
}  // namespace flashgpt::testing
