// A long document to pieces, as a stream.
//
// kFixed cuts every max_bytes. kChapters cuts where a reader would: a piece ends before the strongest heading that lies in the last three
// quarters of the room it has (of equally strong ones the last), so pieces are as few and as long as whole chapters allow. Where there is
// no heading so far on, an earlier one is taken, down to a thirty-second of the room; then, past the half, the last paragraph, line,
// sentence, or space. Neither cuts inside a character (data/split_characters.h) or CR LF.
//
// A document that is not longer than max_bytes stays whole. The pieces joined are the document, byte for byte. Memory: about twice
// max_bytes. Pieces do not depend on the parts in which the text comes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/split_scanner.h"

namespace flashgpt {

enum class SplitMode : std::uint8_t { kNone, kFixed, kChapters };

struct Cut {
  std::int64_t offset = 0;  // in the document; the piece after it begins here
  int level = 0;            // 1 to 6: heading; 7 paragraph, 8 line, 9 sentence, 10 space, 11 character
  std::string_view title;   // the first line of what begins here
};
const char* cut_name(int level);

class Splitter {
 public:
  struct Sink {
    std::function<void(std::string_view)> text;  // of the piece that is open
    std::function<void()> end_piece;             // after its text; also for the last one
    std::function<void(const Cut&)> cut;         // before end_piece of the piece that ends there; may be empty
  };
  Splitter(SplitMode mode, std::int64_t max_bytes, Sink sink);

  void begin(TextKind kind);  // a document
  void append(std::string_view text);
  void end();  // nothing happens for one without text

  static constexpr std::int64_t kLeast = 16, kMost = std::int64_t{1} << 30;  // of max_bytes

 private:
  void scan(std::size_t end);
  void add(const Place& place);
  void emit_ripe(std::size_t ahead);
  Cut choose() const;
  Cut weaker_cut(std::string_view room) const;

  SplitMode mode_;
  std::size_t max_;
  Sink sink_;
  LineScanner scanner_{TextKind::kProse};
  std::string buffer_;               // text that is in no piece yet
  std::int64_t begin_ = 0;           // of the buffer, in the document
  std::size_t line_ = 0, seen_ = 0;  // in the buffer: where the open line begins; up to where newlines were looked for
  std::vector<Place> places_, found_;
  bool line_told_ = false;  // the scanner knows the open line
  bool passed_ = false;     // kNone: text was handed on
};

}  // namespace flashgpt
