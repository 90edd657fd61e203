// How well a model predicts text: mean loss, perplexity and bits per byte, as a whole, by how much context a token had, and by how long its
// document was.
//
// A document of n tokens, end-of-text last, has n - 1 targets: each token but the first, with those before it in its window as context.
//   blocks    the stream is cut every T tokens, wherever documents end; each target is seen once and context starts anew with each block.
//             One pass; the mean is that of a training's validation.
//   sliding   a window of T tokens moves through each document by `stride`; after the first window only the last `stride` targets count,
//             so that each had at least T - stride tokens of context, or all there are. T / stride times the work.
// The mean of blocks mixes contexts of 1 .. T tokens; by_context takes it apart.
#pragma once
#include <functional>
#include <limits>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "train/engine.h"

namespace flashgpt {

struct ValidationEvent {
  std::int64_t step = 0;
  double loss = 0, perplexity = 0;
  double bits_per_byte = std::numeric_limits<double>::quiet_NaN();  // until a target stands for a byte of text
  std::int64_t targets = 0;
  bool cut = false;  // a stop signal came before the end of the rows asked for
};

// Mean loss over rows of the validation data, spread evenly over it; rows = 0: all.
ValidationEvent validate(Engine& engine, const EngineConfig& config, const Dataset& data, std::int64_t rows);

inline HostBatch host_batch(const RowBuffers& b) { return {b.tokens, b.targets, b.positions, b.cu_seqlens}; }

enum class EvalMode : std::uint8_t { kBlocks, kSliding };

struct EvalOptions {
  EvalMode mode = EvalMode::kBlocks;
  std::int64_t stride = 0;                                                // sliding: targets of a window, 1 .. T; 0: half of T
  std::int64_t max_windows = 0;                                           // so many, spread evenly over the text; 0: all
  std::function<void(std::int64_t done, std::int64_t windows)> progress;  // may be empty
};

// Targets whose context (or document) has from .. to tokens.
struct EvalBucket {
  std::int64_t from = 0, to = 0;
  std::int64_t targets = 0, bytes = 0;  // bytes of text that the targets stand for; end-of-text has none
  double loss_sum = 0;                  // natural log

  double loss() const;  // NaN without targets, as the next two
  double perplexity() const;
  double bits_per_byte() const;  // NaN without bytes too
};

struct EvalReport {
  EvalBucket all;
  std::int64_t documents = 0, windows = 0;
  std::int64_t least_context = 0;  // sliding: what every target had, unless its document began later
  // Bounds are powers of two: context 1 .. 16, 17 .. 32, 33 .. 64, ...; documents 1 .. 64, 65 .. 128, ... tokens. Empty ones are left out.
  std::vector<EvalBucket> by_context, by_document;
};

// Evaluates a model with rows of config.context_len = T tokens, several windows packed into a row. Sums are taken in the order of the text:
// they do not depend on threads. Error: a stride outside 1 .. T.
EvalReport evaluate(Engine& engine, const EngineConfig& config, const TokenStream& stream, const EvalOptions& options);

// Tokens [begin, end) go through the model; the targets of those from `from` on count.
struct EvalWindow {
  std::int64_t begin = 0, end = 0, from = 0;
};
// The windows of the document in tokens [begin, end) of the stream, end - 1 being end-of-text, in order. Each target counts once.
std::vector<EvalWindow> cut_windows(std::int64_t begin, std::int64_t end, std::int64_t context_len, EvalMode mode, std::int64_t stride);

}  // namespace flashgpt
