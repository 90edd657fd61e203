// A shard: a file of tokens, documents one after the other. Little endian.
//
//     0      magic "FGPTSHRD", uint32 version (1), uint32 bytes of a token (2: uint16 when the vocabulary has at most 65,536 ids; 4:
//     uint32) 16     tokens; zeros up to a multiple of 8
//     ...    document starts: uint64 each, counted in tokens; a document ends with end-of-text, where the next one starts
//     -128   tail: uint64 tokens, documents, bytes of text, vocabulary, end-of-text id, tokenizer hash, payload checksum;
//            tokenizer name (48 bytes, zero-padded); uint64 reserved (0), uint64 checksum of the tail before it, magic "FGPTTAIL"
//
// The counts stand at the end so that a shard can be written as a stream; a file that was cut short has no tail. The payload, from 16 up to
// the tail, is summed up in blocks of 1 MiB: checksum = fold of each block's checksum64, so it is computed in passing.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/stream.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace flashgpt {

struct ShardInfo {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
  std::uint64_t checksum = 0;  // of the payload
  int token_width = 2;         // bytes
  TokenizerInfo tokenizer;     // its name cut to 48 bytes
};
int token_width(std::int64_t vocab_size);  // bytes

// Writes a shard under a temporary name; it appears, whole, at finish(). Memory: 8 bytes a document.
class ShardWriter {
 public:
  ShardWriter(const std::string& path, const TokenizerInfo& tokenizer);

  // Ids of the document that is open, without end-of-text; text_bytes: of the text they stand for.
  void append(std::span<const std::int32_t> ids, std::int64_t text_bytes);
  void end_document();
  std::int64_t tokens() const { return info_.tokens; }

  // Syncs, renames, and returns what the tail says. No document may be open.
  ShardInfo finish();

 private:
  void put(std::string_view bytes);

  std::string path_;
  AtomicFile file_;
  ShardInfo info_;
  std::vector<std::uint64_t> starts_;
  Checksum64 checksum_;
  std::string block_;
  bool open_ = false;
};

enum class Verify : std::uint8_t { kSizes, kChecksum };

// A shard, mapped. Opening checks magic, version and sizes, and, with kChecksum, reads the payload once; an Error names the file and what
// to do.
class Shard {
 public:
  static Shard open(const std::string& path, Verify verify = Verify::kChecksum);

  const ShardInfo& info() const { return info_; }
  TokenSpan tokens() const;
  std::span<const std::uint64_t> document_starts() const;

 private:
  Shard(const std::string& path, MappedFile file) : path_(path), file_(std::move(file)) {}
  void check_head_and_tail();
  void check_payload() const;

  std::string path_;
  MappedFile file_;
  ShardInfo info_;
};

}  // namespace flashgpt
