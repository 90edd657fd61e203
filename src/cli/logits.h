// What a model says to given tokens, in a file that other programs can compare with their own: `flashgpt eval MODEL --tokens IN
// --logits-out OUT`.
//   IN, safetensors:   input_ids int64 or int32 [rows, length]; attention_mask, likewise: 1 at the tokens of a row, which follow each
//   other,
//                      0 at padding before or behind them; absent: no padding
//   OUT, safetensors:  logits fp32 [rows, length, V]: token by token through the KV cache
//                      prompt_logits fp32 [rows, V]: after the last token, all of a row's tokens given at once
//                      losses fp32 [rows, length]: of each token after those before it, by the forward pass of training; 0 for a first one
//                      Padding has zeros.
#pragma once
#include <filesystem>
#include <string>

#include "core/target.h"
#include "core/threads.h"

namespace flashgpt::cli {

void write_logits(const Target& target, ThreadPool& pool, const std::filesystem::path& model, const std::filesystem::path& tokens,
                  const std::filesystem::path& out);

}  // namespace flashgpt::cli
