#include "infer/engine.h"

#include <algorithm>

#include "core/copy.h"
#include "core/cuda/gpu.h"

namespace flashgpt {

MemoryPlan InferenceEngine::plan(const Target& target, const InferenceConfig& config) {
  InferenceEngine recording(Context{.target = target, .arena = Arena(target.device)}, config);
  recording.pass(recording.prompt_, "prompt");
  recording.pass(recording.single_, "token");
  return recording.ctx_.arena.plan();
}

InferenceEngine::InferenceEngine(Context ctx, const InferenceConfig& config) : ctx_(std::move(ctx)), config_(config) { setup(); }

InferenceEngine::InferenceEngine(const Target& target, const InferenceConfig& config, ThreadPool& pool) : config_(config) {
  MemoryPlan memory_plan = plan(target, config);
  const CudaStream queue = cuda::queue_of(target);
  memory_ = Memory(memory_plan.total_bytes(), target.device);
  ctx_ = Context{.target = target, .arena = Arena(std::move(memory_plan), memory_.data(), target.device), .pool = &pool, .cuda = queue};
  setup();
}

void InferenceEngine::setup() {
  config_.model = complete(config_.model);
  const ModelConfig& m = config_.model;
  require(config_.batch > 0, "batch = ", config_.batch, ", expected a positive number");
  require(config_.capacity > 0, "capacity = ", config_.capacity, ", expected a positive number of tokens");
  require(m.family != Family::kGpt2 || config_.capacity <= m.context_len, "capacity = ", config_.capacity,
          ", but the model has positions for ", m.context_len, " tokens");
  config_.chunk = std::clamp<std::int64_t>(config_.chunk, 1, config_.capacity);
  params_ = parameters(m);
  weights_ = allocate(ctx_, params_, Dtype::kF32, MemClass::kWeights);
  w_ = bind(m, weights_);
  block_weights_.blocks = w_.blocks;
  prompt_ = allocate_batch(ctx_, config_.batch, config_.chunk);
  single_ = allocate_batch(ctx_, config_.batch, 1);
  auto ints = [&] { return ctx_.tensor({config_.batch}, Dtype::kI32, MemClass::kInputs); };
  starts_ = ints();
  new_lengths_ = ints();
  end_lengths_ = ints();
  last_ = ints();
  device_logits_ = ctx_.tensor({config_.batch, m.vocab_size}, Dtype::kF32, MemClass::kActivations);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const Shape shape{config_.batch, config_.capacity, m.kv_heads, m.head_dim};
    caches_.push_back({.k = ctx_.tensor(shape, Dtype::kF32, MemClass::kActivations),
                       .v = ctx_.tensor(shape, Dtype::kF32, MemClass::kActivations),
                       .starts = starts_,
                       .new_lengths = new_lengths_,
                       .lengths = end_lengths_});
  }
  model_.emplace(ctx_, m, attention::Implementation::kAuto);
  lengths_.assign(static_cast<std::size_t>(config_.batch), 0);
  logits_.assign(static_cast<std::size_t>(config_.batch * m.vocab_size), 0.0f);
  pass_logits_ = logits_;
}

void InferenceEngine::reset() { std::fill(lengths_.begin(), lengths_.end(), 0); }

std::span<const float> InferenceEngine::logits(std::int64_t row) const {
  const std::int64_t v = config_.model.vocab_size;
  return {logits_.data() + row * v, static_cast<std::size_t>(v)};
}

void InferenceEngine::pass(const Batch& batch, const char* section) {
  ctx_.arena.begin(section);
  model_->infer(ctx_, w_.outer, block_weights_, batch, caches_, last_, device_logits_);
}

void InferenceEngine::feed(std::span<const std::span<const std::int32_t>> tokens) {
  const std::int64_t rows = config_.batch, vocab = config_.model.vocab_size;
  require(static_cast<std::int64_t>(tokens.size()) == rows, "feed: ", tokens.size(), " rows of tokens, expected ", rows);
  std::size_t most = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto& row = tokens[static_cast<std::size_t>(r)];
    most = std::max(most, row.size());
    require(length(r) + static_cast<std::int64_t>(row.size()) <= config_.capacity, "feed: row ", r, " would hold ",
            length(r) + static_cast<std::int64_t>(row.size()), " tokens, the cache has room for ", config_.capacity);
    for (std::int32_t id : row) require(id >= 0 && id < vocab, "feed: token ", id, ", expected one below the vocabulary size ", vocab);
  }
  for (std::size_t done = 0; done < most;) {
    const Batch& batch = most - done == 1 ? single_ : prompt_;
    const auto length = static_cast<std::size_t>(batch.length), n = length * static_cast<std::size_t>(rows);
    std::vector<std::int32_t> ids(n, 0), positions(n, 0), starts, counts, ends, last;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto& row = tokens[static_cast<std::size_t>(r)];
      const std::size_t count = row.size() > done ? std::min(row.size() - done, length) : 0, at = static_cast<std::size_t>(r) * length;
      const auto start = static_cast<std::int32_t>(lengths_[static_cast<std::size_t>(r)]);
      for (std::size_t i = 0; i < count; ++i) {
        ids[at + i] = row[done + i];
        positions[at + i] = start + static_cast<std::int32_t>(i);
      }
      starts.push_back(start);
      counts.push_back(static_cast<std::int32_t>(count));
      ends.push_back(start + static_cast<std::int32_t>(count));
      last.push_back(static_cast<std::int32_t>(at + (count ? count - 1 : 0)));
    }
    upload(ctx_, batch.tokens, ids.data());
    upload(ctx_, batch.positions, positions.data());
    upload(ctx_, starts_, starts.data());
    upload(ctx_, new_lengths_, counts.data());
    upload(ctx_, end_lengths_, ends.data());
    upload(ctx_, last_, last.data());
    pass(batch, &batch == &single_ ? "token" : "prompt");
    download(ctx_, device_logits_, pass_logits_.data());
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      lengths_[r] = ends[r];
      const auto v = static_cast<std::size_t>(vocab);
      if (counts[r])
        std::copy_n(pass_logits_.begin() + static_cast<std::ptrdiff_t>(r * v), v, logits_.begin() + static_cast<std::ptrdiff_t>(r * v));
    }
    done += length;
  }
}

}  // namespace flashgpt
