#include "data/tokenizer/encoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "data/tokenizer/unicode.h"

namespace flashgpt {
namespace {

constexpr std::size_t kCacheBits = 15, kCacheWords = std::size_t{1} << kCacheBits;
constexpr std::size_t kCacheFrom = std::size_t{16} << 10;  // bytes of text after which the memory of a cache is worth it
constexpr std::size_t kKeyBytes = 30, kCachedIds = 8;

// The bytes, zero-padded, as four numbers.
struct Key {
  std::array<std::uint64_t, 4> part{};
  explicit Key(std::string_view word) { std::memcpy(part.data(), word.data(), word.size()); }
  std::size_t slot(std::size_t size) const {
    std::uint64_t h = (part[0] ^ size) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29 ^ part[1]) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 29 ^ part[2]) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29 ^ part[3]) * 0xD6E8FEB86659FD93u;
    return static_cast<std::size_t>(h >> (64 - kCacheBits));
  }
};

bool joins(const TokenizerTables& t, std::uint32_t a, std::uint32_t b) { return t.pairs.has(a, b); }

}  // namespace

struct alignas(64) Encoder::CachedWord {
  std::uint8_t size = 0, count = 0;  // bytes, ids; size 0: free
  std::array<char, kKeyBytes> key{};
  std::array<std::int32_t, kCachedIds> ids{};
};

Encoder::Encoder(std::shared_ptr<const TokenizerTables> tables) : tables_(std::move(tables)) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials, bool first) {
  ids_ = &ids;
  specials_ = specials;
  seen_ += text.size();
  if (seen_ >= kCacheFrom && cache_.empty()) cache_.resize(kCacheWords);
  std::size_t done = 0, from = 0;
  while (true) {
    const AddedTokenFinder::Match m = tables_->raw_tokens.find(text, from, done);
    if (m.token && m.token->special && specials == Specials::kAsText) {
      from = m.end;
      continue;
    }
    if (m.begin > done) stretch(text.substr(done, m.begin - done), first && done == 0, !first && done == 0);
    if (!m.token) return;
    ids.push_back(m.token->id);
    done = from = m.end;
  }
}

void Encoder::stretch(std::string_view text, bool first, bool continues) {
  const TokenizerTables& t = *tables_;
  std::string_view normal = normalize(t.model, text, normalized_);
  // What goes on from the piece before it has had its space in front.
  if (continues && t.model.prefix == Prefix::kEvery) normal.remove_prefix(kMetaSpace.size());
  std::size_t done = 0, from = 0;
  while (true) {
    const AddedTokenFinder::Match m = t.normalized_tokens.find(normal, from, done);
    if (m.token && m.token->special && specials_ == Specials::kAsText) {
      from = m.end;
      continue;
    }
    if (m.begin > done) {
      const std::string_view piece = normal.substr(done, m.begin - done);
      if (continues && done == 0 && t.model.prefix == Prefix::kEveryMissing) {
        std::string_view whole = pre_tokenize(t.model, piece, false, pre_tokenized_);
        if (piece[0] != ' ' && !piece.starts_with(kMetaSpace)) whole.remove_prefix(kMetaSpace.size());
        words(whole);
      } else {
        words(pre_tokenize(t.model, piece, first && done == 0, pre_tokenized_));
      }
    }
    if (!m.token) return;
    ids_->push_back(m.token->id);
    done = from = m.end;
  }
}

void Encoder::words(std::string_view text) {
  const TokenizerTables& t = *tables_;
  const char *at = text.data(), *const end = at + text.size();
  if (t.model.byte_level) {
    if (t.model.merges.empty() && !t.model.ignore_merges) {  // bytes
      for (const char c : text) ids_->push_back(t.byte_ids[static_cast<unsigned char>(c)]);
      return;
    }
    while (at < end) {
      const char* const stop = t.word_end(at, end);
      word({at, static_cast<std::size_t>(stop - at)});
      at = stop;
    }
    return;
  }
  while (at < end) {
    Character c = decode_utf8(at, end);
    const char* stop = at + c.bytes;
    while (stop < end) {
      const Character next = decode_utf8(stop, end);
      if (!joins(t, c.code, next.code)) break;
      c = next;
      stop += c.bytes;
    }
    word({at, static_cast<std::size_t>(stop - at)});
    at = stop;
  }
}

void Encoder::word(std::string_view text) {
  if (text.size() > kKeyBytes || cache_.empty()) {
    merged(text);
    ids_->insert(ids_->end(), symbols_.begin(), symbols_.end());
    return;
  }
  CachedWord& w = cache_[Key(text).slot(text.size())];
  if (w.size == text.size() && std::memcmp(w.key.data(), text.data(), text.size()) == 0) {
    const std::size_t n = ids_->size();
    if (w.count == 1) {
      ids_->push_back(w.ids[0]);
    } else {
      ids_->resize(n + w.count);
      std::copy_n(w.ids.begin(), w.count, ids_->begin() + static_cast<std::ptrdiff_t>(n));
    }
    return;
  }
  merged(text);
  ids_->insert(ids_->end(), symbols_.begin(), symbols_.end());
  if (symbols_.size() > kCachedIds) return;
  w.size = static_cast<std::uint8_t>(text.size());
  w.count = static_cast<std::uint8_t>(symbols_.size());
  std::copy(text.begin(), text.end(), w.key.begin());
  std::copy(symbols_.begin(), symbols_.end(), w.ids.begin());
}

// The ids of a word, to symbols_.
void Encoder::merged(std::string_view text) {
  const TokenizerTables& t = *tables_;
  symbols_.clear();
  if (t.model.ignore_merges) {
    const auto found = t.whole.find(std::string(text));
    if (found != t.whole.end()) return symbols_.push_back(found->second);
  }
  if (t.model.byte_level) {
    symbols_.resize(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) symbols_[i] = t.byte_ids[static_cast<unsigned char>(text[i])];
  } else {
    for (const char *at = text.data(), *end = at + text.size(); at < end;) {
      const Character c = decode_utf8(at, end);
      if (c.code < t.char_ids.size() && t.char_ids[c.code] >= 0) {
        symbols_.push_back(t.char_ids[c.code]);
      } else {
        for (std::uint32_t i = 0; i < c.bytes; ++i) symbols_.push_back(t.byte_ids[static_cast<unsigned char>(at[i])]);
      }
      at += c.bytes;
    }
  }
  merger_.merge(t.merges, symbols_);
}

std::size_t context_bytes(const TokenizerTables& tables) {
  return std::max({std::size_t{4}, tables.raw_tokens.longest(), tables.normalized_tokens.longest()});
}

bool safe_cut(const TokenizerTables& t, std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte >= 0x80 && byte < 0xC0) return false;  // perhaps inside a character
  if (t.model.split != SplitRule::kNone) {
    if (!safe_cut(text, at)) return false;
  } else if (t.model.byte_level) {
    if (!t.model.merges.empty()) return false;
  } else {
    const Character a = decode_last(text.data(), text.data() + at), b = decode_utf8(text.data() + at, text.data() + text.size());
    if (joins(t, a.code, b.code)) return false;
  }
  return !t.raw_tokens.touches(text, at) && !t.normalized_tokens.touches(text, at);
}

}  // namespace flashgpt
