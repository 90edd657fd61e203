// Text from a model: prompts in, tokens out as they are made.
#pragma once
#include <functional>
#include <string>

#include "infer/engine.h"
#include "infer/sampler.h"

namespace flashgpt {

enum class StopReason : std::uint8_t { kEndOfText, kLength, kCapacity, kStopped };
const char* name_of(StopReason r);

struct GenerateParams {
  SamplingParams sampling;
  std::int64_t max_new_tokens = 128;
  std::int32_t end_of_text = -1;  // ends a row; negative: nothing does
};

// Called with each new token of a row, in order; returning false ends that row (a stop text was seen).
using TokenSink = std::function<bool(std::int64_t row, std::int32_t token)>;

// Continues each prompt (one a row of the engine, none empty). Returns why each row ended. The engine's caches are emptied first.
std::vector<StopReason> generate(InferenceEngine& engine, const std::vector<std::vector<std::int32_t>>& prompts,
                                 const GenerateParams& params, const TokenSink& sink);

// Bytes in, whole UTF-8 characters out: a character cut in half waits for the rest. Bytes that are no UTF-8 come out as U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace flashgpt
