// A file to documents: a text file is one, JSON Lines (https://jsonlines.org) are one a line, the text under one key.
//
// Text comes in parts, so memory does not grow with a document: only a line of JSON is held whole, up to kLongestLine. Lines that are no
// JSON, have no text or are longer are skipped and counted by reason, with file and line number of the first.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files.h"
#include "data/source.h"

namespace flashgpt {

enum class SourceFormat : std::uint8_t { kAuto, kText, kJsonLines };  // kAuto: JSON Lines by the name (.jsonl, .ndjson, also compressed)

struct SourceOptions {
  SourceFormat format = SourceFormat::kAuto;
  std::string text_key = "text";
  bool binary = false;  // take text with NUL bytes too
};

class DocumentReader {
 public:
  // skipped: gets what is skipped inside the file; may be null.
  DocumentReader(const std::string& path, const SourceOptions& options, std::vector<Skipped>* skipped);

  explicit operator bool() const { return static_cast<bool>(source_); }  // false: cannot be opened, errno says why
  // Goes to the next document, past what is left of this one. false: no more, or a fault.
  bool next();
  // The next part of its text, valid until the next call; empty: it ends.
  std::string_view text();
  // Why the file as a whole is of no use ("empty", "binary", "damaged gzip", ...), or the rest of it from a place on; else empty. Known
  // when next() returned false or text() nothing.
  const std::string& fault() const { return fault_; }
  bool json_lines() const { return json_; }
  bool compressed() const { return source_.compressed(); }

  static constexpr std::size_t kBlock = std::size_t{1} << 20;         // a part of text, at most
  static constexpr std::size_t kProbe = std::size_t{64} << 10;        // how far NUL bytes are looked for in a text file
  static constexpr std::size_t kLongestLine = std::size_t{64} << 20;  // bytes

 private:
  bool fill();  // more bytes into block_
  bool next_line();
  bool text_of_line();
  void skip(const std::string& reason, const std::string& detail);

  std::string path_;
  SourceOptions options_;
  std::vector<Skipped>* skipped_;
  ByteSource source_;
  std::string block_, line_, value_, fault_;
  std::size_t at_ = 0;  // of the block, used
  std::int64_t line_number_ = 0;
  bool json_ = false, begun_ = false, given_ = false, too_long_ = false;
};

}  // namespace flashgpt
