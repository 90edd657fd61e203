#include "data/shard.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "flashgpt/error.h"

namespace flashgpt {

namespace {

constexpr char kMagic[9] = "FGPTSHRD", kTailMagic[9] = "FGPTTAIL";
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kMaxVocab = std::numeric_limits<std::int32_t>::max();  // ids are int32 in memory

struct Head {
  char magic[8];
  std::uint32_t version, token_width;
};
struct Tail {
  std::uint64_t tokens, documents, text_bytes, vocab_size, end_of_text, tokenizer_hash, checksum;
  char tokenizer[48];
  std::uint64_t reserved, tail_checksum;
  char magic[8];
};
static_assert(sizeof(Head) == 16 && sizeof(Tail) == 128);

std::uint64_t sum_of(const Tail& t) { return checksum64(std::as_bytes(std::span(&t, 1)).first(offsetof(Tail, tail_checksum))); }

template <class T> std::string_view bytes_of(const T& value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

std::uint64_t token_area(std::uint64_t tokens, std::uint64_t width) { return (tokens * width + 7) / 8 * 8; }

}  // namespace

int token_width(std::int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

ShardWriter::ShardWriter(const std::string& path, const TokenizerInfo& tokenizer) : path_(path), file_(path) {
  require(tokenizer.vocab_size >= 1 && tokenizer.vocab_size <= kMaxVocab && tokenizer.end_of_text >= 0 &&
              tokenizer.end_of_text < tokenizer.vocab_size,
          "a vocabulary of ", tokenizer.vocab_size, " ids with end-of-text ", tokenizer.end_of_text, ", expected from 1 to ", kMaxVocab,
          " ids, end-of-text among them");
  info_.tokenizer = tokenizer;
  info_.tokenizer.name.resize(std::min(tokenizer.name.size(), sizeof Tail::tokenizer));
  info_.token_width = token_width(tokenizer.vocab_size);
  Head head{.version = kVersion, .token_width = static_cast<std::uint32_t>(info_.token_width)};
  std::memcpy(head.magic, kMagic, sizeof head.magic);
  put(bytes_of(head));
}

void ShardWriter::put(std::string_view bytes) {
  checksum_.update(std::as_bytes(std::span(bytes)));
  file_.write(bytes);
}

void ShardWriter::append(std::span<const std::int32_t> ids, std::int64_t text_bytes) {
  if (!open_) starts_.push_back(static_cast<std::uint64_t>(info_.tokens));
  open_ = true;
  const auto width = static_cast<std::size_t>(info_.token_width);
  block_.resize(ids.size() * width);
  char* out = block_.data();
  for (std::int32_t id : ids) {
    require(id >= 0 && id < info_.tokenizer.vocab_size, "token ", id, " for ", path_, ", expected an id below the vocabulary of ",
            info_.tokenizer.vocab_size);
    std::memcpy(out, &id, width);  // little endian: the low bytes come first
    out += width;
  }
  put(block_);
  info_.tokens += static_cast<std::int64_t>(ids.size());
  info_.text_bytes += text_bytes;
}

void ShardWriter::end_document() {
  const std::int32_t end = info_.tokenizer.end_of_text;
  append({&end, 1}, 0);
  ++info_.documents;
  open_ = false;
}

ShardInfo ShardWriter::finish() {
  require(!open_, path_, ": a document is open, expected its end before the end of the shard");
  const auto tokens = static_cast<std::uint64_t>(info_.tokens), width = static_cast<std::uint64_t>(info_.token_width);
  put(std::string(token_area(tokens, width) - tokens * width, '\0'));
  put({reinterpret_cast<const char*>(starts_.data()), starts_.size() * sizeof starts_[0]});
  info_.checksum = checksum_.value();

  Tail tail{.tokens = tokens,
            .documents = static_cast<std::uint64_t>(info_.documents),
            .text_bytes = static_cast<std::uint64_t>(info_.text_bytes),
            .vocab_size = static_cast<std::uint64_t>(info_.tokenizer.vocab_size),
            .end_of_text = static_cast<std::uint64_t>(info_.tokenizer.end_of_text),
            .tokenizer_hash = info_.tokenizer.hash,
            .checksum = info_.checksum};
  std::copy(info_.tokenizer.name.begin(), info_.tokenizer.name.end(), tail.tokenizer);
  std::memcpy(tail.magic, kTailMagic, sizeof tail.magic);
  tail.tail_checksum = sum_of(tail);
  file_.write(bytes_of(tail));
  file_.commit();
  return info_;
}

Shard Shard::open(const std::string& path, Verify verify) {
  Shard shard(path, MappedFile(path));
  shard.check_head_and_tail();
  if (verify == Verify::kChecksum) shard.check_payload();
  return shard;
}

void Shard::check_head_and_tail() {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::uint64_t size = bytes.size();
  Head head{};
  if (size >= sizeof head) std::memcpy(&head, bytes.data(), sizeof head);
  require(size >= sizeof head && std::memcmp(head.magic, kMagic, sizeof head.magic) == 0, path_, " (", size,
          " bytes) is no shard of tokens: make shards from text with `flashgpt data prepare`");
  require(head.version == kVersion, path_, " is a shard of version ", head.version, ", expected ", kVersion,
          ": it was made by another release, prepare the data again");
  Tail tail{};
  const bool whole = size >= sizeof head + sizeof tail;
  if (whole) std::memcpy(&tail, bytes.data() + size - sizeof tail, sizeof tail);
  require(whole && std::memcmp(tail.magic, kTailMagic, sizeof tail.magic) == 0, path_, " (", size,
          " bytes) is cut short: copy it again or prepare the data again");

  const std::uint64_t width = head.token_width, payload = size - sizeof head - sizeof tail;
  const bool sizes = (width == 2 || width == 4) && tail.tokens <= payload / width && tail.documents <= payload / 8 &&
                     token_area(tail.tokens, width) + 8 * tail.documents == payload;
  const bool ids = tail.vocab_size >= 1 && tail.vocab_size <= static_cast<std::uint64_t>(kMaxVocab) && tail.end_of_text < tail.vocab_size &&
                   width == static_cast<std::uint64_t>(token_width(static_cast<std::int64_t>(tail.vocab_size)));
  require(sum_of(tail) == tail.tail_checksum && sizes && ids, path_,
          " is damaged (its counts do not agree): copy it again or prepare the data again");

  info_ = {.tokens = static_cast<std::int64_t>(tail.tokens),
           .documents = static_cast<std::int64_t>(tail.documents),
           .text_bytes = static_cast<std::int64_t>(tail.text_bytes),
           .checksum = tail.checksum,
           .token_width = static_cast<int>(width),
           .tokenizer = {.name = std::string(tail.tokenizer, strnlen(tail.tokenizer, sizeof tail.tokenizer)),
                         .vocab_size = static_cast<std::int64_t>(tail.vocab_size),
                         .end_of_text = static_cast<std::int32_t>(tail.end_of_text),
                         .hash = tail.tokenizer_hash}};
}

void Shard::check_payload() const {
  const std::span<const std::byte> bytes = file_.bytes();
  require(checksum64(bytes.first(bytes.size() - sizeof(Tail))) == info_.checksum, path_,
          " is damaged (its checksum differs): copy it again or prepare the data again");
}

TokenSpan Shard::tokens() const { return {.data = file_.bytes().data() + sizeof(Head), .count = info_.tokens, .width = info_.token_width}; }

std::span<const std::uint64_t> Shard::document_starts() const {
  const std::byte* p = file_.bytes().data() + sizeof(Head) +
                       token_area(static_cast<std::uint64_t>(info_.tokens), static_cast<std::uint64_t>(info_.token_width));
  return {reinterpret_cast<const std::uint64_t*>(p), static_cast<std::size_t>(info_.documents)};
}

}  // namespace flashgpt
