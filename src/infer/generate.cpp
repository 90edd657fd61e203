#include "infer/generate.h"

namespace flashgpt {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// Length of the character that a first byte announces; 0 for a byte that cannot begin one.
std::size_t announced(unsigned char c) {
  return c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
}

// The second byte has narrower bounds after some first bytes (no overlong forms, no surrogates, nothing above U+10FFFF).
bool fits(std::string_view text, std::size_t i) {
  const auto c = static_cast<unsigned char>(text[i]), first = static_cast<unsigned char>(text[0]);
  if (c < 0x80 || c > 0xBF) return false;
  if (i != 1) return true;
  if (first == 0xE0) return c >= 0xA0;
  if (first == 0xED) return c <= 0x9F;
  if (first == 0xF0) return c >= 0x90;
  if (first == 0xF4) return c <= 0x8F;
  return true;
}

}  // namespace

const char* name_of(StopReason r) {
  switch (r) {
    case StopReason::kEndOfText: return "end of text";
    case StopReason::kLength: return "length";
    case StopReason::kCapacity: return "cache full";
    case StopReason::kStopped: return "stop text";
  }
  return "?";
}

std::vector<StopReason> generate(InferenceEngine& engine, const std::vector<std::vector<std::int32_t>>& prompts,
                                 const GenerateParams& params, const TokenSink& sink) {
  check(params.sampling);
  require(params.max_new_tokens >= 0, "max-new-tokens = ", params.max_new_tokens, ", expected 0 or more");
  const std::size_t rows = prompts.size();
  for (const auto& p : prompts) require(!p.empty(), "prompt: empty, expected at least one token");

  engine.reset();
  std::vector<std::span<const std::int32_t>> input(prompts.begin(), prompts.end());
  std::vector<std::int32_t> next(rows), order;
  std::vector<StopReason> reasons(rows, StopReason::kLength);
  std::vector<bool> done(rows, params.max_new_tokens == 0);
  std::size_t left = params.max_new_tokens == 0 ? 0 : rows;
  if (left > 0) engine.feed(input);
  auto end = [&](std::size_t row, StopReason why) {
    reasons[row] = why;
    done[row] = true;
    --left;
  };
  for (std::int64_t step = 0; left > 0; ++step) {
    for (std::size_t r = 0; r < rows; ++r) {
      input[r] = {};
      if (done[r]) continue;
      const auto row = static_cast<std::int64_t>(r);
      next[r] = sample(engine.logits(row), params.sampling, static_cast<std::uint32_t>(r), static_cast<std::uint64_t>(step), order);
      if (next[r] == params.end_of_text)
        end(r, StopReason::kEndOfText);
      else if (!sink(row, next[r]))
        end(r, StopReason::kStopped);
      else if (step + 1 >= params.max_new_tokens)
        end(r, StopReason::kLength);
      else if (engine.length(row) >= engine.config().capacity)
        end(r, StopReason::kCapacity);
      else
        input[r] = {&next[r], 1};
    }
    if (left > 0) engine.feed(input);
  }
  return reasons;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const std::size_t need = announced(static_cast<unsigned char>(rest[0]));
    std::size_t have = 1;
    while (have < need && have < rest.size() && fits(rest, have)) ++have;
    if (need && have == need)
      out += rest.substr(0, need);
    else if (need && have == rest.size())
      break;  // the rest may still come
    else
      out += kReplacement;
    rest.remove_prefix(have);
  }
  pending_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? kReplacement : "";
}

}  // namespace flashgpt
