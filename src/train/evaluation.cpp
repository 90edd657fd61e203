#include "train/evaluation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "train/signals.h"

namespace flashgpt {
namespace {

constexpr std::int64_t kFirstContext = 16, kFirstDocument = 64;  // upper bounds of the first buckets

// Buckets of a quantity that doubles, by their upper bounds.
class Buckets {
 public:
  explicit Buckets(std::int64_t first) : first_(first) {}
  EvalBucket& of(std::int64_t value) {
    const auto to = std::max(first_, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value))));
    EvalBucket& b = buckets_[to];
    b.from = to == first_ ? 1 : to / 2 + 1;
    b.to = to;
    return b;
  }
  std::vector<EvalBucket> all() const {
    std::vector<EvalBucket> out;
    for (const auto& [to, bucket] : buckets_) out.push_back(bucket);
    return out;
  }

 private:
  std::int64_t first_;
  std::map<std::int64_t, EvalBucket> buckets_;
};

void add(EvalBucket& b, double loss, std::int64_t bytes) {
  b.targets += 1;
  b.bytes += bytes;
  b.loss_sum += loss;
}

// The place behind each end-of-text.
std::vector<std::int64_t> document_ends(const TokenStream& stream) {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kPiece, stream.size())));
  std::vector<std::int64_t> ends;
  for (std::int64_t at = 0; at < stream.size(); at += kPiece) {
    const std::int64_t n = std::min(kPiece, stream.size() - at);
    stream.copy(at, n, ids.data());
    for (std::int64_t i = 0; i < n; ++i)
      if (ids[static_cast<std::size_t>(i)] == stream.end_of_text()) ends.push_back(at + i + 1);
  }
  return ends;
}

// A window in the batch that is being filled.
struct Placed {
  EvalWindow window;
  std::int64_t at = 0;        // in the batch
  std::int64_t document = 0;  // tokens
};

// Packs windows into rows of a micro-batch, runs it when it is full, and sums up the losses.
class Packer {
 public:
  Packer(Engine& engine, const EngineConfig& config, const TokenStream& stream, EvalReport& report)
      : engine_(engine), stream_(stream), report_(report), row_(config.context_len), tokens_(config.micro_batch * config.context_len) {
    const auto n = static_cast<std::size_t>(tokens_);
    ids_.resize(n);
    targets_.resize(n);
    positions_.resize(n);
    losses_.resize(n);
    next_.resize(static_cast<std::size_t>(row_) + 1);
  }

  void add_window(const EvalWindow& w, std::int64_t document) {
    const std::int64_t n = w.end - w.begin;
    if (used_ % row_ + n > row_) used_ += row_ - used_ % row_;  // windows stay inside a row
    if (used_ + n > tokens_) flush();
    placed_.push_back({w, used_, document});
    used_ += n;
    if (used_ == tokens_) flush();
  }

  void flush() {
    if (placed_.empty()) return;
    std::fill(ids_.begin(), ids_.end(), stream_.end_of_text());
    std::fill(targets_.begin(), targets_.end(), kIgnoredTarget);
    std::fill(positions_.begin(), positions_.end(), 0);
    bounds_.clear();
    std::int64_t covered = 0;
    auto pad_until = [&](std::int64_t end) {  // padding is sequences of one token
      for (; covered < end; ++covered) bounds_.push_back(static_cast<std::int32_t>(covered));
    };
    for (const Placed& p : placed_) {
      pad_until(p.at);
      bounds_.push_back(static_cast<std::int32_t>(p.at));
      const std::int64_t n = p.window.end - p.window.begin;
      stream_.copy(p.window.begin, n + 1, next_.data());
      for (std::int64_t i = 0; i < n; ++i) {
        const auto t = static_cast<std::size_t>(p.at + i), s = static_cast<std::size_t>(i);
        ids_[t] = next_[s];
        positions_[t] = static_cast<std::int32_t>(i);
        if (p.window.begin + i >= p.window.from) targets_[t] = next_[s + 1];
      }
      covered = p.at + n;
    }
    pad_until(tokens_);
    bounds_.resize(static_cast<std::size_t>(tokens_) + 1, static_cast<std::int32_t>(tokens_));
    engine_.evaluate({ids_.data(), targets_.data(), positions_.data(), bounds_.data()}, losses_.data());
    for (const Placed& p : placed_) {
      for (std::int64_t i = p.window.from; i < p.window.end; ++i) {
        const std::int64_t in_window = i - p.window.begin;
        const auto t = static_cast<std::size_t>(p.at + in_window);
        const std::int64_t bytes = stream_.text_bytes(targets_[t]);
        add(report_.all, losses_[t], bytes);
        add(by_context_.of(in_window + 1), losses_[t], bytes);
        add(by_document_.of(p.document), losses_[t], bytes);
      }
    }
    placed_.clear();
    used_ = 0;
  }

  void finish() {
    flush();
    report_.by_context = by_context_.all();
    report_.by_document = by_document_.all();
  }

 private:
  Engine& engine_;
  const TokenStream& stream_;
  EvalReport& report_;
  std::int64_t row_, tokens_, used_ = 0;
  std::vector<Placed> placed_;
  std::vector<std::int32_t> ids_, targets_, positions_, bounds_, next_;
  std::vector<float> losses_;
  Buckets by_context_{kFirstContext}, by_document_{kFirstDocument};
};

}  // namespace

double EvalBucket::loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : std::nan(""); }
double EvalBucket::perplexity() const { return std::exp(loss()); }
double EvalBucket::bits_per_byte() const { return bytes > 0 ? loss_sum / std::log(2.0) / static_cast<double>(bytes) : std::nan(""); }

ValidationEvent validate(Engine& engine, const EngineConfig& config, const Dataset& data, std::int64_t rows) {
  const ValidationLoader loader(data.val(), config.context_len);
  const std::int64_t batch = config.micro_batch, all = (loader.rows() + batch - 1) / batch;
  const std::int64_t batches = rows > 0 ? std::min((rows + batch - 1) / batch, all) : all;
  StepRows buffer(batch, batch, config.context_len);
  ValidationEvent v;
  double loss = 0;
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < batches; ++i) {  // spread over the whole text when they do not cover it
    if (stop_requested()) {
      v.cut = true;
      break;
    }
    const RowCounts counts = buffer.fill(loader, i * all / batches * batch);
    loss += engine.evaluate(host_batch(buffer.micro(0)));
    v.targets += counts.targets;
    bytes += counts.text_bytes;
  }
  if (v.targets > 0) v.loss = loss / static_cast<double>(v.targets);
  v.perplexity = std::exp(v.loss);
  if (bytes > 0) v.bits_per_byte = loss / std::log(2.0) / static_cast<double>(bytes);
  return v;
}

std::vector<EvalWindow> cut_windows(std::int64_t begin, std::int64_t end, std::int64_t context_len, EvalMode mode, std::int64_t stride) {
  std::vector<EvalWindow> windows;
  const std::int64_t last = end - 1;  // end-of-text is a target and no input
  for (std::int64_t from = begin; from < last;) {
    EvalWindow w{.from = from};
    if (mode == EvalMode::kBlocks) {
      w.begin = from;
      w.end = std::min((from / context_len + 1) * context_len, last);
    } else {
      w.end = std::min(from == begin ? from + context_len : from + stride, last);
      w.begin = std::max(begin, w.end - context_len);
    }
    windows.push_back(w);
    from = w.end;
  }
  return windows;
}

EvalReport evaluate(Engine& engine, const EngineConfig& config, const TokenStream& stream, const EvalOptions& options) {
  const std::int64_t length = config.context_len, stride = options.stride > 0 ? options.stride : std::max<std::int64_t>(1, length / 2);
  require(options.stride >= 0 && stride <= length, "stride = ", options.stride, ", expected 1 to context_len = ", length);
  require(options.max_windows >= 0, "max_windows = ", options.max_windows, ", expected 0 (all) or more");
  EvalReport report;
  if (options.mode == EvalMode::kSliding) report.least_context = length - stride + 1;
  const std::vector<std::int64_t> ends = document_ends(stream);
  auto each_document = [&](const auto& visit) {
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      visit(end - begin - 1, cut_windows(begin, end, length, options.mode, stride));
      begin = end;
    }
  };
  std::int64_t all = 0;
  each_document([&](std::int64_t, const std::vector<EvalWindow>& windows) { all += static_cast<std::int64_t>(windows.size()); });
  report.windows = options.max_windows > 0 ? std::min(options.max_windows, all) : all;

  Packer packer(engine, config, stream, report);
  std::int64_t taken = 0, due = all - report.windows;  // an even spread: one is due when the windows wanted add up to all there are
  each_document([&](std::int64_t document, const std::vector<EvalWindow>& windows) {
    bool any = false;
    for (const EvalWindow& w : windows) {
      due += report.windows;
      if (due < all) continue;
      due -= all;
      packer.add_window(w, document);
      any = true;
      ++taken;
      if (options.progress) options.progress(taken, report.windows);
    }
    report.documents += any;
  });
  packer.finish();
  return report;
}

}  // namespace flashgpt
