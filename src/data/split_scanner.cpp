#include "data/split_scanner.h"

#include <algorithm>
#include <cctype>

namespace flashgpt {

namespace {

constexpr int kMostRun = 2;  // headings in a row that do not go deeper, beyond the first; more are a table of contents
constexpr int kWideGap = 3;  // blank lines
constexpr std::size_t kMostStyles = 6;

constexpr std::string_view kRoffParagraphs[] = {".PP", ".Pp", ".LP", ".IP", ".TP", ".It", ".P\r"};
constexpr std::size_t kDeepest = 8;  // characters before a member
constexpr std::string_view kMemberWords[] = {"def ",       "async ",    "class ",    "struct ",  "enum ",   "union ",
                                             "interface ", "impl ",     "template",  "virtual ", "public ", "private ",
                                             "protected ", "internal ", "override ", "fn ",      "pub ",    "func ",
                                             "fun ",       "function ", "@",         "/**",      "///",     "//!"};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80) != 0; }

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// Whether a /* is open after the line, which begins outside of any.
bool opens_comment(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '"' || c == '\'' || c == '`') {
      quote = c;
    } else if (c == '/' && text.substr(i).starts_with("//")) {
      return false;
    } else if (c == '/' && text.substr(i).starts_with("/*")) {
      const std::size_t end = text.find("*/", i + 2);
      if (end == text.npos) return true;
      i = end + 1;
    }
  }
  return false;
}

}  // namespace

// Follows fences of Markdown, comments of code and long strings of scripts; true: the line is inside (or is the fence).
bool LineScanner::inside_block(std::string_view text) {
  if (kind_ == TextKind::kCode) {
    const bool was = comment_;
    if (comment_) {
      if (const std::size_t end = text.find("*/"); end != text.npos) comment_ = opens_comment(text.substr(end + 2));
    } else {
      comment_ = opens_comment(text);
    }
    return was;
  }
  if (kind_ == TextKind::kScript) {
    const bool was = comment_;
    if ((count(text, "\"\"\"") + count(text, "'''")) % 2 == 1) comment_ = !comment_;
    return was;
  }
  if (kind_ != TextKind::kMarkdown && kind_ != TextKind::kProse) return false;
  const std::size_t at = std::min(text.find_first_not_of(' '), text.size());
  const std::string_view mark = text.substr(at, 3);
  if (at > 3 || (mark != "```" && mark != "~~~")) return fence_;
  if (!fence_) {
    // An underline of ~~~ is no fence, and in plain text neither is a fence that nothing closes; there only ``` counts.
    if (mark == "~~~" && (kind_ == TextKind::kProse || text.find_last_not_of("~ \r") == text.npos)) return false;
    fence_ = true;
    fence_mark_ = mark[0];
  } else if (mark[0] == fence_mark_ && text.substr(at).find_first_not_of(std::string(1, mark[0]) + " \r") == text.npos) {
    fence_ = false;
  }
  return true;
}

// Lines that belong to a heading which follows: labels, anchors, index entries, the head of an info node, form feeds.
bool LineScanner::leads_up(const Line& line) const {
  const std::string_view t = line.text;
  if (t.starts_with('\f') || t.starts_with('\x1f')) return true;
  switch (kind_) {
    case TextKind::kRst: return t.starts_with(".. _") || t.starts_with(".. index::") || t.starts_with(".. highlight::");
    case TextKind::kProse: return t.starts_with("File: ") || t.starts_with(".. _");
    case TextKind::kMarkdown: return t.starts_with("<a ") || t.starts_with("[](#");
    case TextKind::kTexinfo: return t.starts_with("@node ") || t.starts_with("@c ") || t.starts_with("@anchor{");
    case TextKind::kRoff: return t.starts_with(".\\\"") || t.starts_with("'\\\"");
    default: return false;
  }
}

Heading LineScanner::underlined(const Line& line, bool blank_before, const Line& after) {
  const bool over = overline_;
  if (!(blank_before || over) || after.blank || (std::isspace(static_cast<unsigned char>(line.text[0])) && !over)) return {};
  const std::size_t columns = columns_of(line.text);
  if (columns > 160 || underline(line.text, 3, true)) return {};
  const char mark = underline(after.text, columns, kind_ != TextKind::kProse);
  if (mark == 0) return {};
  if (kind_ == TextKind::kMarkdown) return {.level = mark == '=' ? 1 : mark == '-' ? 2 : 0};
  if (kind_ == TextKind::kProse && mark == '.' && !over) return {};  // an ellipsis
  const std::pair<char, bool> style{mark, over};
  auto found = std::find(styles_.begin(), styles_.end(), style);
  if (found == styles_.end()) {
    if (styles_.size() == kMostStyles) return {.level = 6};
    found = styles_.insert(styles_.end(), style);
  }
  return {.level = static_cast<int>(found - styles_.begin()) + 1};
}

Heading LineScanner::code_heading(const Line& line, bool blank_before) {
  std::string_view t = line.text;
  const std::size_t indent = t.find_first_not_of(" \t");
  if (indent > 0) {  // a member of a class, or a definition in an indented namespace
    if (!blank_before || indent > kDeepest) return {};
    t.remove_prefix(indent);
    const auto begins = [&](std::string_view word) { return t.starts_with(word); };
    return {.level = std::any_of(std::begin(kMemberWords), std::end(kMemberWords), begins) ? 4 : 0};
  }
  const char c = t[0];
  const bool after_end = before_.text == "}" || before_.text == "};" || before_.text == "}\r" || before_.text == "end";
  if (!blank_before && !after_end) return {};
  const bool comment =
      t.starts_with("/*") || t.starts_with("//") || t.starts_with("--") || t.starts_with(";") || (kind_ == TextKind::kScript && c == '#');
  if (!comment && !is_letter(c) && c != '@' && c != '(' && c != '[' && c != '#' && c != '.' && c != '<' && c != '~') return {};
  if (kind_ == TextKind::kCode && c == '#' && !t.starts_with("#[") && !t.starts_with("#define")) return {};  // #if inside of a function
  const std::size_t end = t.find_last_not_of(" \t\r");
  if (!comment && end != t.npos && t[end] == ':' && t.find_first_of(" (") == t.npos) return {};  // a label
  return {.level = blank_before ? 2 : 3};
}

Heading LineScanner::heading_of(const Line& line, bool blank_before, const Line& after) {
  const auto holds = [&](Heading h) {
    const bool fits = (!h.blank_before || blank_before) && (!h.blank_after || after.blank);
    return fits ? h.level : 0;
  };
  switch (kind_) {
    case TextKind::kCode:
    case TextKind::kScript: return code_heading(line, blank_before);
    case TextKind::kRoff:
    case TextKind::kTexinfo:
    case TextKind::kLatex:
    case TextKind::kHtml: return marked_heading(line.text, kind_);
    case TextKind::kMarkdown:
      if (const Heading h = marked_heading(line.text, kind_); h.level) return h;
      break;
    case TextKind::kProse: {
      // Markdown of an unknown name. A comment of a script is less: "# like this".
      const Heading h = marked_heading(line.text, TextKind::kMarkdown);
      const std::size_t title = line.text.find_first_not_of("# ");
      if (h.level && blank_before && after.blank && title != line.text.npos && !std::islower(static_cast<unsigned char>(line.text[title])))
        return h;
      break;
    }
    case TextKind::kRst: break;
  }
  if (const Heading h = underlined(line, blank_before, after); h.level) return h;
  return {.level = kind_ == TextKind::kRst ? 0 : holds(prose_heading(line.text)), .listed = true};
}

void LineScanner::flush(std::vector<Place>& places) {
  if (run_flat_ < kMostRun) places.insert(places.end(), run_.begin(), run_.end());
  run_.clear();
  run_level_ = run_flat_ = 0;
}

void LineScanner::flush_first(std::vector<Place>& places) {
  if (run_flat_ > 0) return;
  places.insert(places.end(), run_.begin(), run_.end());
  run_.clear();
}

void LineScanner::decide(const Line& before, const Line& line, const Line& after, std::vector<Place>& places) {
  if (line.blank) return;
  if (std::exchange(taken_, false)) {  // the underline of the heading before
    blank_before_ = true;
    return;
  }
  const bool blank_before = before.blank || blank_before_;
  if (inside_block(line.text)) {
    blank_before_ = overline_ = false;
    lead_ = -1;
    flush(places);
    return;
  }
  if (leads_up(line)) {
    if (lead_ < 0) lead_ = line.offset;
    blank_before_ = true;
    return;
  }
  // A line of marks above a title that has the same below is an overline; it becomes the beginning of the heading.
  const bool rule = kind_ != TextKind::kMarkdown && kind_ != TextKind::kCode && kind_ != TextKind::kScript && blank_before &&
                    !after.blank && underline(line.text, 3, true) != 0;
  if (rule) {
    overline_ = true;
    if (lead_ < 0) lead_ = line.offset;
    return;
  }
  const Heading h = heading_of(line, blank_before, after);
  const std::int64_t offset = lead_ >= 0 ? lead_ : line.offset;
  const bool below = h.level && underline(after.text, columns_of(line.text), true) != 0 && !after.blank &&
                     (kind_ == TextKind::kRst || kind_ == TextKind::kProse || kind_ == TextKind::kMarkdown);
  overline_ = false;
  lead_ = -1;
  if (h.level) {
    const Place place{.offset = offset, .title_offset = line.offset, .level = h.level};
    // What follows a wide gap begins anew: the first chapter after the table of contents.
    if (!h.listed || blanks_ >= kWideGap) flush(places);
    if (h.listed) {
      if (run_level_ && h.level <= run_level_) ++run_flat_;
      if (run_flat_ < kMostRun) run_.push_back(place);
    } else {
      places.push_back(place);
    }
    run_level_ = h.listed ? h.level : 0;
    taken_ = below;
    blank_before_ = kind_ != TextKind::kCode && kind_ != TextKind::kScript;  // a heading right below counts as after a blank line
    return;
  }
  blank_before_ = false;
  flush(places);
  const auto begins = [&](std::string_view word) { return line.text.starts_with(word); };
  const bool marked = kind_ == TextKind::kRoff && std::any_of(std::begin(kRoffParagraphs), std::end(kRoffParagraphs), begins);
  if (before.blank || marked || (kind_ == TextKind::kHtml && begins("<p>")))
    places.push_back({.offset = offset, .title_offset = line.offset, .level = kParagraphLevel});
}

void LineScanner::line(std::int64_t offset, std::string_view text, std::vector<Place>& places) {
  Line next;
  next.offset = offset;
  next.text = std::string(text);
  next.blank = text.find_first_not_of(" \t\r") == text.npos || text == "\xE3\x80\x80";
  if (line_.offset >= 0) {
    decide(before_, line_, next, places);
    blanks_ = line_.blank ? blanks_ + 1 : 0;
    before_ = std::move(line_);
  }
  line_ = std::move(next);
}

}  // namespace flashgpt
