// A tokenizer.json: what loads encodes any text to ids of its vocabulary, and decodes them.
#include "data/tokenizer.h"

#include "fuzz/targets.h"

namespace flashgpt::fuzz {

void tokenizer(std::string_view bytes) {
  expect_answer([&] {
    const Tokenizer t = Tokenizer::parse(std::string(bytes), "tokenizer.json");
    promise(t.end_of_text() >= 0 && t.end_of_text() < t.vocab_size(), "end-of-text is an id");
    promise(static_cast<std::int64_t>(t.token_bytes().size()) == t.vocab_size(), "every id has a number of bytes");
    for (const std::string_view text :
         {std::string_view("The cat's 12345\n\n  \t\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80<|endoftext|>e\xcc\x81"),
          std::string_view("\xff\xfe\x00\xc3 a\xe2\x82", 8), bytes.substr(0, 64)}) {
      expect_answer([&] {
        std::vector<std::int32_t> ids;
        t.encode(text, ids);
        for (const std::int32_t id : ids) {
          promise(id >= 0 && id < t.vocab_size(), "an id is in the vocabulary");
          t.decode(id);
        }
      });
      expect_answer([&] { t.encode_prompt(text); });
    }
  });
}

}  // namespace flashgpt::fuzz
