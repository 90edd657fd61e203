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

// Each part that would change ids, and is not known, is named; damaged files give an Error and take no memory to speak of.
TEST(Tokenizer, HostileFilesGiveAnError) {
  const std::string good = [] {
    const TemporaryFolder folder;
    Tokenizer::bytes().save(folder.path());
    return folder.read("tokenizer.json");
  }();
  const auto error = [&](auto&& change) {
    Json j = parse_json(good, "good");
    change(j);
    return error_of([&] { Tokenizer::parse(compact_json(j), "T"); });
  };
  EXPECT_EQ(error([](Json&) {}), "");
  const auto says = [&](auto&& change, const char* part) {
    const std::string e = error(change);
    EXPECT_NE(e.find(part), std::string::npos) << "'" << e << "' does not speak of " << part;
  };
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}};
  says([](Json& j) { j = Json::array(); }, "expected an object");
  says([](Json& j) { j.erase("model"); }, "model");
  says([](Json& j) { j["model"]["type"] = "Unigram"; }, "expected BPE");
  says([](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout");
  says([](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix");
  says([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  says([](Json& j) { j["model"]["vocab"] = Json::object(); }, "model.vocab");
  says([](Json& j) { j["model"]["vocab"].erase("A"); }, "byte 65");
  says([](Json& j) { j["model"]["vocab"]["A"] = -1; }, "expected an id");
  says([](Json& j) { j["model"]["vocab"]["A"] = 1.5; }, "expected an id");
  says([](Json& j) { j["model"]["vocab"]["A"] = "65"; }, "expected an id");
  says([](Json& j) { j["model"]["vocab"]["ab"] = std::uint64_t{1} << 63; }, "expected an id");
  says([](Json& j) { j["model"]["vocab"]["ab"] = 2000000000; }, "expected an id below");  // of few pieces
  says([](Json& j) { j["model"]["vocab"][""] = 300; }, "expected some text");
  says([](Json& j) { j["model"]["merges"] = "a b"; }, "model.merges");
  for (const Json& merge : {Json("a"), Json("a b c"), Json("a b"), Json(7), Json::array({"a"}), Json::array({"a", 1}), Json("")})
    says([&](Json& j) { j["model"]["merges"] = Json::array({merge}); }, "merge");
  says([](Json& j) { j["pre_tokenizer"] = nullptr; }, "normalizer");  // neither bytes nor spaces as a letter
  says([](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "Whitespace");
  says([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "add_prefix_space");
  says(
      [&](Json& j) {
        j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, j["pre_tokenizer"]}}};
      },
      "gpt2, llama3, qwen2, qwen3.5");
  says([&](Json& j) { j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", 1}}; }, "expected a list");
  says([](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; }, "NFKC");
  says(
      [](Json& j) {
        j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
      },
      "Lowercase");
  says([](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; }, "BertProcessing");
  says([](Json& j) { j["added_tokens"] = Json::array(); }, "which token ends a text");
  says([](Json& j) { j["added_tokens"][0]["id"] = 65; }, "id 65 stands for");
  says([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }, "id 256 stands for");
  says([](Json& j) { j["added_tokens"][0]["id"] = 1 << 30; }, "expected an id below");
  says([](Json& j) { j["added_tokens"][0]["single_word"] = true; }, "single_word");
  says([](Json& j) { j["added_tokens"][0]["content"] = ""; }, "some content");
  says([](Json& j) { j["added_tokens"] = {{"<|endoftext|>", 256}}; }, "added_tokens");

  // Any part in the place of any other, and cut short anywhere: an Error or a tokenizer, never a crash.
  for (std::size_t n = 0; n < good.size(); n += 97) error_of([&] { Tokenizer::parse(good.substr(0, n), "T"); });
  const Json j = parse_json(good, "good");
  for (const auto& [key, unused] : j.items())
    for (const Json& value :
         {Json(1), Json("x"), Json::array({1, "x", nullptr}), Json::object({{"type", 1}}), Json::object({{"type", "Sequence"}})})
      error([&, k = key](Json& changed) { changed[k] = value; });
}

TEST(Tokenizer, WhatEndsATextIsReadBesideIt) {
  const TemporaryFolder folder;
  Json j = [&] {
    Tokenizer::bytes().save(folder.path());
    return parse_json(folder.read("tokenizer.json"), "tokenizer.json");
  }();
  j["added_tokens"].push_back(j["added_tokens"][0]);
  j["added_tokens"][1]["id"] = 257;
  j["added_tokens"][1]["content"] = "<|im_end|>";
  folder.file("tokenizer.json", compact_json(j));
  std::filesystem::remove(folder.path("tokenizer_config.json"));
  EXPECT_EQ(Tokenizer::load(folder.path()).end_of_text(), 256);
  folder.file("generation_config.json", R"({"eos_token_id": [257, 256]})");
  EXPECT_EQ(Tokenizer::load(folder.path()).end_of_text(), 257);
  EXPECT_EQ(Tokenizer::load(folder.path("tokenizer.json")).stops(), (std::vector<std::int32_t>{257, 256}));
  folder.file("tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>"}, "chat_template": "{{ x }}"})");
  const Tokenizer t = Tokenizer::load(folder.path());
  EXPECT_EQ(t.end_of_text(), 256);
  EXPECT_EQ(t.stops(), (std::vector<std::int32_t>{256, 257}));
  EXPECT_NE(t.hash(), Tokenizer::bytes().hash());

  const TemporaryFolder copy;
  t.save(copy.path());
  EXPECT_EQ(Tokenizer::load(copy.path()).hash(), t.hash());
  EXPECT_EQ(copy.read("tokenizer.json"), folder.read("tokenizer.json"));
  EXPECT_NE(copy.read("tokenizer_config.json").find("{{ x }}"), std::string::npos);

  folder.file("tokenizer_config.json", R"({"eos_token": "<|nothing|>"})");
  EXPECT_NE(error_of([&] { Tokenizer::load(folder.path()); }).find("<|im_end|>"), std::string::npos);
  std::filesystem::remove(folder.path("tokenizer_config.json"));
  folder.file("generation_config.json", R"({"eos_token_id": 1000})");
  EXPECT_NE(error_of([&] { Tokenizer::load(folder.path()); }).find("eos_token_id = 1000"), std::string::npos);
}

// What a post-processor puts in front of a text, a model is given; data has none of it.
TEST(Tokenizer, PromptsBeginAsTheTemplateSays) {
  const TemporaryFolder folder;
  Tokenizer::bytes().save(folder.path());
  Json j = parse_json(folder.read("tokenizer.json"), "tokenizer.json");
  j["post_processor"] = parse_json(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|endoftext|>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<|endoftext|>"}}],
      "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [256]}}}]})",
                                   "post_processor");
  const Tokenizer t = Tokenizer::parse(compact_json(j), "T");
  EXPECT_EQ(t.encode_prompt("a<|endoftext|>"), (std::vector<std::int32_t>{256, 'a', 256}));
  j["post_processor"]["processors"][1]["special_tokens"]["<|endoftext|>"]["ids"][0] = 257;
  EXPECT_NE(error_of([&] { Tokenizer::parse(compact_json(j), "T"); }).find("an id of the vocabulary"), std::string::npos);
}

}  // namespace
}  // namespace flashgpt::testing
