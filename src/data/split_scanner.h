// Lines of a text to the places where it may be cut, strongest first by level: headings 1 to 6, paragraphs 7. It sees one line at a time
// and decides on each when the next is known, so its memory is a few lines.
//
// A place lies at the beginning of a line: of the heading, of the line above its title (RST), or of what leads up to it (a label, an
// anchor, the separator of an info node). Headings that stand in a table of contents are none: three and more in a row that do not go
// deeper, with no text between.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/split_headings.h"

namespace flashgpt {

inline constexpr int kParagraphLevel = 7;

struct Place {
  std::int64_t offset = 0;        // in the text
  std::int64_t title_offset = 0;  // of the line that says what begins here
  int level = 0;
};

class LineScanner {
 public:
  explicit LineScanner(TextKind kind) : kind_(kind) {}

  // The next line: where it begins, its first kLongest bytes without the newline. Places are appended in the order of their offsets.
  void line(std::int64_t offset, std::string_view text, std::vector<Place>& places);
  // Headings that might still turn out to be a table of contents: all, at the end of the text; or those that nothing speaks against yet.
  void flush(std::vector<Place>& places);
  void flush_first(std::vector<Place>& places);

  static constexpr std::size_t kLongest = 512;

 private:
  struct Line {
    std::int64_t offset = -1;
    std::string text;
    bool blank = true;
  };
  Heading heading_of(const Line& line, bool blank_before, const Line& after);
  Heading underlined(const Line& line, bool blank_before, const Line& after);
  Heading code_heading(const Line& line, bool blank_before);
  bool leads_up(const Line& line) const;
  bool inside_block(std::string_view text);
  void decide(const Line& before, const Line& line, const Line& after, std::vector<Place>& places);

  TextKind kind_;
  Line before_, line_;
  bool blank_before_ = true;              // nothing but blank lines and what leads up stands right before line_
  std::int64_t lead_ = -1;                // where what leads up to a heading begins
  bool fence_ = false, comment_ = false;  // inside ``` or /* */ or """
  char fence_mark_ = 0;
  bool overline_ = false, taken_ = false;      // the line before is an overline; this one is the underline of the last heading
  std::vector<std::pair<char, bool>> styles_;  // underline and whether there is an overline, by level
  std::vector<Place> run_;                     // headings without text between
  int blanks_ = 0;                             // blank lines right before line_
  int run_level_ = 0, run_flat_ = 0;           // its last level; how often it did not go deeper
};

}  // namespace flashgpt
