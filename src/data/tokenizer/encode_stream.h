// Much text to ids, on all threads, in memory that does not grow with it: the text is cut into pieces where a cut changes no id, the pieces
// are encoded at the same time, and the ids come out in order. The result is that of encoding each document at once, for any number of
// threads.
//
// Where 4 MiB of a document have no such place (all of it one word), it is cut by force, which is the one way in which ids may differ.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/threads.h"
#include "data/tokenizer.h"

namespace flashgpt {

class EncodeStream {
 public:
  // ids of a piece, bytes of its text, whether its document ends with it, and the tag given with its text.
  using Sink = std::function<void(std::span<const std::int32_t> ids, std::int64_t text_bytes, bool ends, int tag)>;
  EncodeStream(const Tokenizer& tokenizer, ThreadPool& pool, Sink sink);

  void append(std::string_view text, int tag);  // to the document that is open
  void end_document(int tag);                   // nothing happens when it has no text
  void finish();                                // what is not encoded yet

  static constexpr std::size_t kPiece = std::size_t{64} << 10;   // bytes, about
  static constexpr std::size_t kLongest = std::size_t{4} << 20;  // bytes: longer pieces are cut by force

 private:
  struct Piece {
    std::string text;
    std::vector<std::int32_t> ids;
    bool first = false, ends = false;
    int tag = 0;
  };
  void cut(int tag, bool ends);
  std::size_t cut_place(std::string_view text, bool ends) const;
  void put(std::string_view text, int tag, bool ends);
  void flush();

  const Tokenizer& tokenizer_;
  ThreadPool& pool_;
  Sink sink_;
  std::vector<Encoder> encoders_;  // one a thread
  std::vector<Piece> pieces_;      // the first count_ wait
  std::size_t count_ = 0, waiting_bytes_ = 0;
  std::string open_;   // text of the open document that is in no piece
  bool first_ = true;  // the next piece begins a document
};

}  // namespace flashgpt
