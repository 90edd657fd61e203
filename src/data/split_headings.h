// Which line of a text begins a part of it. Levels: 1 (book, part, volume), 2 (chapter), 3 (section) ... 6, lower is stronger.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace flashgpt {

// How a text marks its parts, by the name of its file (compression aside).
enum class TextKind : std::uint8_t {
  kProse,     // text, books, info manuals; whatever is not known
  kMarkdown,  // # ATX, setext underlines
  kRst,       // underlines, levels in the order in which they appear
  kRoff,      // manual pages: .TH .SH .SS, mdoc's .Dt .Sh .Ss
  kTexinfo,   // @chapter, @section
  kLatex,     // \chapter{, \section{
  kHtml,      // <h1> ... <h6>
  kCode,      // definitions at the left margin; comments /* */ and //
  kScript,    // the same; comments with #, texts in """
};
TextKind text_kind(std::string_view name);

struct Heading {
  int level = 0;              // 0: the line is none
  bool blank_before = false;  // it only counts after a blank line (or at the beginning),
  bool blank_after = false;   // and before one
  bool listed = false;        // a table of contents has such lines too
};

// Chapters in Chinese (第三章, 第 12 回, 卷之二, 附录 A, 一、) and English (Chapter 3, PART II, Book the First, Appendix A, IV., 2.1
// Title), and lines all in capitals. Decoration around it (**, ==, 【】) is allowed.
Heading prose_heading(std::string_view line);
// Marks of kMarkdown (ATX), kRoff, kTexinfo, kLatex, kHtml.
Heading marked_heading(std::string_view line, TextKind kind);

// The character of an underline (===, ***, ~~~), as long as `columns`, or nearly, or longer where `any_longer`; 0: the line is none.
char underline(std::string_view line, std::size_t columns, bool any_longer);
std::size_t columns_of(std::string_view line);  // wide characters count as two

}  // namespace flashgpt
