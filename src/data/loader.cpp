#include "data/loader.h"

#include <algorithm>
#include <limits>

#include "data/permutation.h"
#include "flashgpt/error.h"

namespace flashgpt {

namespace {

// Philox streams of the loader: an epoch's order and its offset.
enum : std::uint64_t { kOrder = 0, kOffset = 1 };
std::uint64_t stream_id(std::int64_t epoch, std::uint64_t what) { return static_cast<std::uint64_t>(epoch) * 2 + what; }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void check_context_len(std::int64_t context_len) {
  require(context_len >= 1, "context_len = ", context_len, ", expected the number of tokens of a row, at least 1");
}

void check_rows(std::int64_t position, std::int64_t rows, std::int64_t context_len) {
  require(position >= 0, "position = ", position, " of a loader, expected a row index, at least 0");
  require(rows >= 1 && rows <= std::numeric_limits<std::int32_t>::max() / context_len, "rows = ", rows, " of ", context_len,
          " tokens in one micro-batch, expected at least 1 row and fewer than 2^31 tokens");
}

// Row r of `out`: `count` tokens of the ring from `begin` on, then padding. bound: the next free place in cu_seqlens.
RowCounts fill_row(const TokenStream& s, std::int64_t begin, std::int64_t count, std::int64_t context_len, std::int64_t r,
                   const RowBuffers& out, std::int32_t*& bound) {
  RowCounts counts;
  const std::int32_t end = s.end_of_text();
  const std::int64_t first = r * context_len;
  std::int32_t *tokens = out.tokens + first, *targets = out.targets + first, *positions = out.positions + first;

  std::int32_t next = end;
  if (count > 0) {
    s.copy(begin, count, tokens);
    s.copy((begin + count) % s.size(), 1, &next);
  }
  std::fill(tokens + count, tokens + context_len, end);

  std::int32_t position = 0;
  for (std::int64_t t = 0; t < context_len; ++t) {
    if (position == 0) {
      *bound++ = static_cast<std::int32_t>(first + t);
      ++counts.sequences;
    }
    positions[t] = position++;
    if (tokens[t] == end) {
      targets[t] = kIgnoredTarget;
      position = 0;
    } else {
      targets[t] = t + 1 < count ? tokens[t + 1] : next;
      ++counts.targets;
      counts.text_bytes += s.text_bytes(targets[t]);
    }
  }
  return counts;
}

void finish_bounds(std::int32_t* bound, std::int64_t tokens, const RowBuffers& out) {
  std::fill(bound, out.cu_seqlens + tokens + 1, static_cast<std::int32_t>(tokens));
}

}  // namespace

RowCounts& RowCounts::operator+=(const RowCounts& o) {
  targets += o.targets;
  text_bytes += o.text_bytes;
  sequences += o.sequences;
  return *this;
}

TrainLoader::TrainLoader(const TokenStream& stream, std::int64_t context_len, std::uint64_t seed)
    : stream_(&stream), context_len_(context_len), seed_(seed) {
  check_context_len(context_len);
  chunks_ = ceil_div(stream.size(), context_len);
}

RowCounts TrainLoader::fill(std::int64_t position, std::int64_t rows, const RowBuffers& out) const {
  check_rows(position, rows, context_len_);
  const std::int64_t n = stream_->size();
  RowCounts counts;
  std::int32_t* bound = out.cu_seqlens;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t e = (position + r) / chunks_;
    const std::int64_t chunk = Permutation(chunks_, seed_, stream_id(e, kOrder))((position + r) % chunks_);
    // A stream of one row stays as it is: turned, its documents would be cut for nothing.
    const std::int64_t offset = chunks_ > 1 ? Permutation(n, seed_, stream_id(e, kOffset))(0) : 0;
    const std::int64_t begin = chunk * context_len_, count = std::min(context_len_, n - begin);
    counts += fill_row(*stream_, (begin + offset) % n, count, context_len_, r, out, bound);
  }
  finish_bounds(bound, rows * context_len_, out);
  return counts;
}

ValidationLoader::ValidationLoader(const TokenStream& stream, std::int64_t context_len) : stream_(&stream), context_len_(context_len) {
  check_context_len(context_len);
  rows_ = ceil_div(stream.size(), context_len);
}

RowCounts ValidationLoader::fill(std::int64_t first, std::int64_t rows, const RowBuffers& out) const {
  check_rows(first, rows, context_len_);
  RowCounts counts;
  std::int32_t* bound = out.cu_seqlens;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t begin = std::min((first + r) * context_len_, stream_->size());
    counts += fill_row(*stream_, begin, std::min(context_len_, stream_->size() - begin), context_len_, r, out, bound);
  }
  finish_bounds(bound, rows * context_len_, out);
  return counts;
}

StepRows::StepRows(std::int64_t rows, std::int64_t micro_batch, std::int64_t context_len)
    : rows_(rows), micro_batch_(micro_batch), context_len_(context_len) {
  check_context_len(context_len);
  require(micro_batch >= 1, "micro_batch = ", micro_batch, ", expected at least 1");
  require(rows >= 1 && rows % micro_batch == 0, "rows = ", rows, ", expected a multiple of micro_batch = ", micro_batch);
  memory_ = std::make_unique<std::int32_t[]>(static_cast<std::size_t>(4 * rows * context_len + micro_batches()));
  counts_.resize(static_cast<std::size_t>(micro_batches()));
}

RowBuffers StepRows::micro(std::int64_t m) const {
  const std::int64_t n = rows_ * context_len_, tokens = micro_batch_ * context_len_;
  std::int32_t* p = memory_.get() + m * tokens;
  return {.tokens = p, .targets = p + n, .positions = p + 2 * n, .cu_seqlens = p + 3 * n + m};
}

void StepRows::check_context(std::int64_t loader_context) const {
  require(loader_context == context_len_, "a loader of rows of ", loader_context, " tokens, expected context_len = ", context_len_);
}

}  // namespace flashgpt
