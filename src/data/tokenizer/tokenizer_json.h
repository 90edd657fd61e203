// tokenizer.json of Hugging Face's `tokenizers`: BPE of the byte-level kind (GPT-2, Llama 3, Qwen) and of SentencePiece's kind (Llama 2,
// Mistral). What would change ids and is not known here is refused by name, never passed over.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/model.h"

namespace flashgpt {

// An Error names the file (`what`), the part, and what was expected.
TokenizerModel parse_tokenizer_json(std::string_view text, const std::string& what);

// A byte-level vocabulary: pieces[id] is a text of bytes, merges are pairs of ids in the order of their ranks, end_of_text a special token
// with the id after the last piece. The text of tokenizer.json.
std::string byte_level_json(SplitRule split, const std::vector<std::string>& pieces,
                            const std::vector<std::pair<std::int32_t, std::int32_t>>& merges, std::string_view end_of_text);

}  // namespace flashgpt
