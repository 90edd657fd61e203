// Text for `flashgpt eval`, as tokens in memory (4 bytes each).
#pragma once
#include <string>
#include <vector>

#include "data/stream.h"
#include "data/tokenizer.h"

namespace flashgpt::cli {

struct EvalText {
  std::vector<std::int32_t> ids;  // documents, each ended by end-of-text
  TokenStream stream;             // over ids
};

// inputs: files, folders and patterns, as find_files takes them. Each file is a document; of *.jsonl files each line is one, an object
// whose `field` holds its text. Documents without text are left out. An Error names the file, and the line.
EvalText read_eval_text(const std::vector<std::string>& inputs, const std::string& field, const Tokenizer& tokenizer);

}  // namespace flashgpt::cli
