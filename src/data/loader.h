// Rows of tokens for training and for validation, as the model takes them: packed, with document bounds.
//
// The stream of an epoch is a ring of N tokens, turned by an offset of (seed, epoch) and cut into ceil(N / T) chunks of T tokens, so rows
// start at other places of the documents in each epoch; a permutation of (seed, epoch) orders them. Position p of the endless order is row
// p mod chunks of epoch p div chunks: a number is the whole state of the loader, whatever the batch size. Each token is in exactly one row
// of an epoch, and each token but end-of-text has the next as its target, across the row's end too. The last chunk's rest is padding.
//
// In a row a sequence starts at its beginning and after each end-of-text; padding is end-of-text, so sequences of one.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/stream.h"

namespace flashgpt {

inline constexpr std::int32_t kIgnoredTarget = -1;

// Where rows go, R rows of T tokens: host memory of the caller.
struct RowBuffers {
  std::int32_t* tokens = nullptr;      // [R * T]
  std::int32_t* targets = nullptr;     // [R * T] the next token; kIgnoredTarget at end-of-text and padding
  std::int32_t* positions = nullptr;   // [R * T] 0 where a sequence starts
  std::int32_t* cu_seqlens = nullptr;  // [R * T + 1] sequence bounds in the packed R * T tokens, the rest repeats R * T
};

struct RowCounts {
  std::int64_t targets = 0;     // that are not ignored
  std::int64_t text_bytes = 0;  // that those targets stand for: bits per byte divides by it
  std::int64_t sequences = 0;
  RowCounts& operator+=(const RowCounts& o);
};

class TrainLoader {
 public:
  // The stream is referred to, not copied. context_len T >= 1.
  TrainLoader(const TokenStream& stream, std::int64_t context_len, std::uint64_t seed);

  std::int64_t context_len() const { return context_len_; }
  std::int64_t rows_per_epoch() const { return chunks_; }
  std::int64_t epoch(std::int64_t position) const { return position / chunks_; }
  // Rows position .. position + rows - 1 of the endless order. Safe from several threads; allocates nothing.
  RowCounts fill(std::int64_t position, std::int64_t rows, const RowBuffers& out) const;

 private:
  const TokenStream* stream_;
  std::int64_t context_len_, chunks_;
  std::uint64_t seed_;
};

// The stream once, in order: each token but end-of-text is predicted exactly once. Context starts anew with each row.
class ValidationLoader {
 public:
  ValidationLoader(const TokenStream& stream, std::int64_t context_len);

  std::int64_t context_len() const { return context_len_; }
  std::int64_t rows() const { return rows_; }
  // Rows first .. first + rows - 1; those past the end are padding, so any micro-batch will do.
  RowCounts fill(std::int64_t first, std::int64_t rows, const RowBuffers& out) const;

 private:
  const TokenStream* stream_;
  std::int64_t context_len_, rows_;
};

// The rows of one optimizer step, cut into micro-batches, in memory allocated once. cu_seqlens count within a micro-batch.
class StepRows {
 public:
  // rows is a multiple of micro_batch.
  StepRows(std::int64_t rows, std::int64_t micro_batch, std::int64_t context_len);

  // loader: TrainLoader or ValidationLoader of the same context_len. Counts of all rows; counts(m): of one micro-batch.
  template <class Loader> RowCounts fill(const Loader& loader, std::int64_t position) {
    check_context(loader.context_len());
    total_ = {};
    for (std::int64_t m = 0; m < micro_batches(); ++m)
      total_ += counts_[static_cast<std::size_t>(m)] = loader.fill(position + m * micro_batch_, micro_batch_, micro(m));
    return total_;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t micro_batches() const { return rows_ / micro_batch_; }
  RowBuffers micro(std::int64_t m) const;
  const RowCounts& counts(std::int64_t m) const { return counts_[static_cast<std::size_t>(m)]; }
  const RowCounts& total() const { return total_; }

 private:
  void check_context(std::int64_t loader_context) const;

  std::int64_t rows_, micro_batch_, context_len_;
  std::unique_ptr<std::int32_t[]> memory_;
  std::vector<RowCounts> counts_;
  RowCounts total_;
};

}  // namespace flashgpt
