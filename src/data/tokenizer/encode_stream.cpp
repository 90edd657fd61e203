#include "data/tokenizer/encode_stream.h"

#include <algorithm>
#include <utility>

namespace flashgpt {
namespace {

constexpr std::size_t kPiecesAThread = 8;

}  // namespace

EncodeStream::EncodeStream(const Tokenizer& tokenizer, ThreadPool& pool, Sink sink)
    : tokenizer_(tokenizer), pool_(pool), sink_(std::move(sink)) {
  for (int i = 0; i < pool.size(); ++i) encoders_.push_back(tokenizer.encoder());
}

void EncodeStream::append(std::string_view text, int tag) {
  open_ += text;
  cut(tag, false);
}

void EncodeStream::end_document(int tag) {
  cut(tag, true);
  first_ = true;
}

// Where the first piece of `text` ends; 0: not known before there is more text. Depends on the text alone, not on how it came.
std::size_t EncodeStream::cut_place(std::string_view text, bool ends) const {
  if (ends && text.size() <= kPiece) return text.size();
  const std::size_t context = context_bytes(tokenizer_.tables());
  const auto safe = [&](std::size_t at) { return safe_cut(tokenizer_.tables(), text, at); };
  if (!ends && text.size() <= kPiece + context) return 0;
  for (std::size_t at = kPiece; at > 0; --at)
    if (safe(at)) return at;
  const std::size_t stop = ends ? text.size() : text.size() - context;
  for (std::size_t at = kPiece + 1; at < std::min(stop, kLongest); ++at)
    if (safe(at)) return at;
  if (stop < kLongest) return ends ? text.size() : 0;
  if (ends && text.size() <= kLongest) return text.size();
  std::size_t at = kLongest;  // by force, but not inside a character
  while (at + 3 > kLongest && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void EncodeStream::cut(int tag, bool ends) {
  std::size_t done = 0;
  while (done < open_.size()) {
    const std::string_view rest = std::string_view(open_).substr(done);
    const std::size_t at = cut_place(rest, ends);
    if (at == 0) break;
    put(rest.substr(0, at), tag, ends && at == rest.size());
    done += at;
  }
  open_.erase(0, done);
}

void EncodeStream::put(std::string_view text, int tag, bool ends) {
  if (count_ == pieces_.size()) pieces_.emplace_back();
  Piece& p = pieces_[count_++];
  p.text.assign(text);
  p.first = std::exchange(first_, false);
  p.ends = ends;
  p.tag = tag;
  waiting_bytes_ += text.size();
  const auto threads = static_cast<std::size_t>(pool_.size());
  if (waiting_bytes_ >= threads * kPiecesAThread * kPiece || count_ >= 256 * threads) flush();
}

void EncodeStream::finish() {
  flush();
  pieces_.clear();
}

void EncodeStream::flush() {
  pool_.parallel_for(static_cast<std::int64_t>(count_), [&](std::int64_t task, int worker) {
    Piece& p = pieces_[static_cast<std::size_t>(task)];
    p.ids.clear();
    encoders_[static_cast<std::size_t>(worker)].encode(p.text, p.ids, Specials::kAsText, p.first);
  });
  for (std::size_t i = 0; i < count_; ++i) {
    const Piece& p = pieces_[i];
    sink_(p.ids, static_cast<std::int64_t>(p.text.size()), p.ends, p.tag);
  }
  count_ = waiting_bytes_ = 0;
}

}  // namespace flashgpt
