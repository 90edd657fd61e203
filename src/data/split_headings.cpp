#include "data/split_headings.h"

#include <algorithm>
#include <span>

#include "data/source.h"
#include "data/tokenizer/unicode.h"

namespace flashgpt {

namespace {

constexpr std::size_t kLongest = 160;  // bytes of a heading

using Words = std::span<const std::string_view>;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_wide(char c) { return (c & 0x80) != 0; }

// Takes the first of the words that the text begins with; its number in the list, or -1.
int take(std::string_view& text, Words words) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (text.starts_with(words[i])) {
      text.remove_prefix(words[i].size());
      return static_cast<int>(i);
    }
  return -1;
}

constexpr std::string_view kWideSpaces[] = {"\xE3\x80\x80", "\xC2\xA0", "\xEF\xBB\xBF"};  // U+3000, U+00A0, byte order mark

void skip_spaces(std::string_view& s) {
  while (!s.empty())
    if (is_space(s[0]))
      s.remove_prefix(1);
    else if (take(s, kWideSpaces) < 0)
      return;
}
void trim_end(std::string_view& s, std::string_view ascii, Words wide) {
  for (bool more = true; more && !s.empty();) {
    more = false;
    if (is_space(s.back()) || ascii.find(s.back()) != ascii.npos) {
      s.remove_suffix(1);
      more = true;
    } else {
      for (const std::string_view w : wide)
        if (s.ends_with(w)) s.remove_suffix(w.size()), more = true;
    }
  }
}

// The line without spaces and what people put around headings.
std::string_view undecorated(std::string_view s) {
  static constexpr std::string_view open[] = {"【", "〖", "「", "《", "〔", "\xE3\x80\x80", "\xC2\xA0", "\xEF\xBB\xBF"};
  static constexpr std::string_view close[] = {"】", "〗", "」", "》", "〕", "\xE3\x80\x80", "\xC2\xA0"};
  constexpr std::string_view around = "*_=~-#";
  while (!s.empty()) {
    if (is_space(s[0]) || around.find(s[0]) != around.npos)
      s.remove_prefix(1);
    else if (take(s, open) < 0)
      break;
  }
  trim_end(s, around, close);
  return s;
}

bool has_any(std::string_view s, Words words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return s.find(w) != s.npos; });
}

std::size_t characters(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

constexpr std::string_view kNumerals[] = {"〇", "零", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "百", "千", "万", "两",
                                          "廿", "卅", "○",  "壹", "贰", "叁", "肆", "伍", "陆", "柒", "捌", "玖", "拾", "佰", "仟", "貳",
                                          "參", "陸", "兩", "萬", "０", "１", "２", "３", "４", "５", "６", "７", "８", "９"};

// A number in Chinese or ASCII digits; its characters, 0: none.
int take_numeral(std::string_view& s) {
  int count = 0;
  for (; count < 9 && !s.empty(); ++count)
    if (is_digit(s[0]))
      s.remove_prefix(1);
    else if (take(s, kNumerals) < 0)
      break;
  return count;
}

// What follows 第三章 and its like: nothing, or a title apart from it, or one that is joined to it and short.
bool is_title(std::string_view rest) {
  static constexpr std::string_view dividers[] = {"\xE3\x80\x80", "\xC2\xA0", "：", "、", "．", "·",  "—",
                                                  "（",           "【",       "《", "－", "“",  "「", "│"};
  static constexpr std::string_view stops[] = {"。", "；"};
  static constexpr std::string_view breaks[] = {"。", "；", "，", "、", "：", "”"};
  static constexpr std::string_view joins[] = {"的", "是", "中", "里", "裡", "和", "与", "及", "讲", "講", "说",
                                               "說", "所", "已", "将", "將", "会", "會", "就", "到", "至", "以",
                                               "可", "我", "你", "他", "她", "它", "了", "也", "或", "还"};
  if (rest.empty()) return true;
  std::string_view s = rest;
  const bool divided = is_space(s[0]) || std::string_view(":.-([|").find(s[0]) != std::string_view::npos || take(s, dividers) >= 0;
  if (divided) return characters(rest) <= 60 && !has_any(rest, stops);
  return characters(rest) <= 26 && !has_any(rest, breaks) && take(s, joins) < 0;
}

Heading chinese_heading(std::string_view s) {
  static constexpr std::string_view units[] = {"卷", "篇", "部", "集", "册", "冊", "编", "編", "章", "回", "幕", "折",
                                               "讲", "講", "课", "課", "节", "節", "场", "場", "款", "条", "條"};
  static constexpr int levels[] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 5, 5, 5};
  static constexpr std::string_view alone[] = {"序",   "序言",     "序章", "前言", "引言", "引子", "楔子",   "绪论",    "緒論",
                                               "导论", "導論",     "导言", "導言", "尾声", "尾聲", "后记",   "後記",    "跋",
                                               "结语", "結語",     "目录", "目錄", "自序", "凡例", "附录",   "附錄",    "番外",
                                               "终章", "参考文献", "致谢", "摘要", "序幕", "后序", "再版序", "出版说明"};
  static constexpr std::string_view appendix[] = {"附录", "附錄", "番外", "附"};
  static constexpr std::string_view volume[] = {"卷"}, ordinal[] = {"第"}, of[] = {"之", "第"}, parts[] = {"上", "中", "下"};
  static constexpr std::string_view comma[] = {"、"}, open[] = {"（"}, close[] = {"）"};
  static constexpr std::string_view stops[] = {"。", "，", "；", "："};
  if (std::find(std::begin(alone), std::end(alone), s) != std::end(alone)) return {.level = 2};

  std::string_view t = s;
  if (take(t, ordinal) >= 0) {
    skip_spaces(t);
    if (take_numeral(t) == 0) return {};
    skip_spaces(t);
    const int unit = take(t, units);
    if (unit < 0) return {};
    const int level = levels[unit];
    if (level == 5) return {.level = 5};  // an article of a law: its text follows in the line
    if (!is_title(t)) return {};
    // "第一卷 第三章 ...", which some books have above every chapter.
    if (level == 1)
      if (const std::size_t inner = t.find("第"); inner != t.npos)
        if (const Heading h = chinese_heading(t.substr(inner)); h.level > 1 && h.level < 5) return h;
    return {.level = level};
  }
  if (take(t, volume) >= 0) {
    take(t, of);
    const bool number = take_numeral(t) > 0 || take(t, parts) >= 0;
    return {.level = number && is_title(t) && characters(t) <= 26 ? 1 : 0, .blank_before = true};
  }
  if (take(t, appendix) >= 0) {
    skip_spaces(t);
    const bool number = take_numeral(t) > 0 || (!t.empty() && is_upper(t[0]) && (t.remove_prefix(1), true));
    return {.level = number && is_title(t) ? 2 : 0};
  }
  const bool bracket = take(t, open) >= 0;
  const std::string_view numeral = t;
  if (const int n = take_numeral(t); n > 0 && n <= 3 && !is_digit(numeral[0]) && take(t, bracket ? Words(close) : Words(comma)) >= 0)
    return {.level = characters(t) <= 30 && !t.empty() && !has_any(t, stops) ? (bracket ? 4 : 3) : 0, .blank_before = true};
  return {};
}

bool same_letters(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) { return (is_upper(x) ? x + 32 : x) == y; });
}

std::string_view take_word(std::string_view& s) {  // letters, digits
  const auto end = std::find_if(s.begin(), s.end(), [](char c) { return !is_digit(c) && !is_upper(c) && !is_lower(c); });
  const std::string_view word = s.substr(0, static_cast<std::size_t>(end - s.begin()));
  s.remove_prefix(word.size());
  return word;
}

bool is_roman(std::string_view w) {
  const bool upper = !w.empty() && is_upper(w[0]);
  return !w.empty() && w.size() <= 9 && w.find_first_not_of(upper ? "IVXLCDM" : "ivxlcdm") == w.npos;
}

bool is_number(std::string_view w) {
  static constexpr std::string_view words[] = {
      "one",      "two",     "three",   "four",      "five",     "six",      "seven",   "eight",  "nine",  "ten",   "eleven", "twelve",
      "first",    "second",  "third",   "fourth",    "fifth",    "sixth",    "seventh", "eighth", "ninth", "tenth", "last",   "thirteen",
      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",  "thirty", "forty", "fifty"};
  if (w.empty()) return false;
  if (std::all_of(w.begin(), w.end(), is_digit)) return w.size() <= 4;
  return is_roman(w) || std::any_of(std::begin(words), std::end(words), [&](std::string_view x) { return same_letters(w, x); });
}

// What follows "Chapter 3": nothing, or a title after a mark, or one with a capital.
bool is_english_title(std::string_view rest) {
  if (rest.empty()) return true;
  if (rest.back() == ',' || rest.back() == ';') return false;
  if (std::string_view(".:-)]").find(rest[0]) != std::string_view::npos || is_wide(rest[0])) {
    if (rest[0] != '.') return true;
    rest.remove_prefix(1);
    skip_spaces(rest);
    return rest.empty() || !is_lower(rest[0]);
  }
  if (!is_space(rest[0])) return false;
  skip_spaces(rest);
  return !rest.empty() && !is_lower(rest[0]) && rest[0] != ',';
}

Heading english_heading(std::string_view s) {
  struct Kind {
    std::string_view word;
    int level;
    bool letter;  // numbered by letters too
  };
  static constexpr Kind kinds[] = {{"part", 1, true},     {"book", 1, false},    {"volume", 1, false},  {"vol", 1, false},
                                   {"chapter", 2, false}, {"chap", 2, false},    {"appendix", 2, true}, {"act", 2, false},
                                   {"canto", 2, false},   {"stave", 2, false},   {"letter", 2, false},  {"lecture", 2, false},
                                   {"lesson", 2, false},  {"section", 3, false}, {"scene", 3, false}};
  static constexpr std::string_view alone[] = {"prologue",         "epilogue",        "preface",     "introduction", "foreword",
                                               "afterword",        "conclusion",      "appendix",    "contents",     "glossary",
                                               "acknowledgements", "acknowledgments", "bibliography"};
  for (const std::string_view w : alone)
    if (same_letters(s.ends_with('.') ? s.substr(0, s.size() - 1) : s, w)) return {.level = 2, .blank_before = true, .blank_after = true};
  std::string_view t = s;
  const std::string_view word = take_word(t);
  for (const Kind& k : kinds) {
    if (!same_letters(word, k.word) || !(is_upper(word[0]))) continue;
    if (t.starts_with('.')) t.remove_prefix(1);
    if (t.empty() || !is_space(t[0])) return {};
    skip_spaces(t);
    std::string_view number = take_word(t);
    if (same_letters(number, "the")) {
      skip_spaces(t);
      number = take_word(t);
    }
    const bool letter = k.letter && number.size() == 1 && is_upper(number[0]);
    if ((!is_number(number) && !letter) || !is_english_title(t)) return {};
    return {.level = k.level, .blank_before = true, .blank_after = true};
  }
  return {};
}

// "2.1 Title", "3. Title", "A.2 Title", "IV.", "XII".
Heading numbered_heading(std::string_view s) {
  std::string_view t = s;
  int parts = 0;
  bool dot = false;
  while (parts < 6 && !t.empty() && (is_digit(t[0]) || (parts == 0 && is_upper(t[0])))) {
    const std::string_view word = take_word(t);
    const bool digits = std::all_of(word.begin(), word.end(), is_digit);
    if (parts == 0 && !digits && is_roman(word) && (t.empty() || t == ".")) return {.level = 3, .blank_before = true, .blank_after = true};
    if ((digits && word.size() > 3) || (!digits && word.size() > 1)) return {};
    ++parts;
    dot = t.starts_with('.');
    if (!dot) break;
    t.remove_prefix(1);
    if (!digits && (t.empty() || !is_digit(t[0]))) return {};  // "A. Title" is a name or an entry of a list
  }
  const std::size_t title = t.size();
  skip_spaces(t);
  if (parts == 0 || (parts == 1 && !dot) || t.size() == title) return {};
  if (t.empty() || is_lower(t[0]) || !(is_upper(t[0]) || is_wide(t[0]) || t[0] == '"')) return {};
  static constexpr std::string_view stops[] = {"。", "，", "；", ". "};
  if (std::string_view(".,;:").find(t.back()) != std::string_view::npos || has_any(t, stops)) return {};
  return {.level = std::min(6, parts + 1), .blank_before = true, .blank_after = true};
}

}  // namespace

Heading prose_heading(std::string_view line) {
  if (line.size() > 2 * kLongest) return {};
  const std::string_view s = undecorated(line);
  if (s.empty() || s.size() > kLongest) return {};
  if (s.find("....") != s.npos || s.find(". . .") != s.npos || s.find("……") != s.npos) return {};  // an entry of a table of contents
  if (is_wide(s[0])) return chinese_heading(s);
  if (s.size() > 100) return {};
  if (const Heading h = english_heading(s); h.level) return h;
  std::string_view unindented = line;
  skip_spaces(unindented);
  if (unindented.size() < line.size()) {
    std::string_view centred = s;  // a roman number may stand in the middle of its line
    const std::string_view word = take_word(centred);
    return {.level = is_upper(word.empty() ? ' ' : word[0]) && is_roman(word) && (centred.empty() || centred == ".") ? 3 : 0,
            .blank_before = true,
            .blank_after = true};
  }
  if (const Heading h = numbered_heading(s); h.level) return h;
  const auto letters = std::count_if(s.begin(), s.end(), is_upper);
  if (letters >= 3 && s.size() <= 60 && is_upper(s[0]) && std::none_of(s.begin(), s.end(), is_lower) && s.data() == line.data())
    return {.level = 5, .blank_before = true};
  return {};
}

Heading marked_heading(std::string_view line, TextKind kind) {
  struct Mark {
    std::string_view word;
    int level;
  };
  static constexpr Mark roff[] = {{".TH", 1}, {".Dd", 1}, {".SH", 2}, {".Sh", 2}, {".SS", 3}, {".Ss", 3}};
  static constexpr Mark texinfo[] = {
      {"@part", 1},         {"@chapter", 2},     {"@unnumbered", 2},       {"@appendix", 2},       {"@top", 2},
      {"@majorheading", 2}, {"@chapheading", 2}, {"@section", 3},          {"@unnumberedsec", 3},  {"@appendixsec", 3},
      {"@heading", 3},      {"@subsection", 4},  {"@unnumberedsubsec", 4}, {"@appendixsubsec", 4}, {"@subheading", 4},
      {"@subsubsection", 5}};
  static constexpr Mark latex[] = {{"\\part", 1}, {"\\chapter", 2}, {"\\section", 3}, {"\\subsection", 4}, {"\\subsubsection", 5}};
  const auto of = [&](std::span<const Mark> marks, std::string_view after) -> Heading {
    for (const Mark& m : marks)
      if (line.starts_with(m.word) && (line.size() == m.word.size() || after.find(line[m.word.size()]) != after.npos))
        return {.level = m.level};
    return {};
  };
  switch (kind) {
    case TextKind::kRoff: return of(roff, " \t\r");
    case TextKind::kTexinfo: return of(texinfo, " \t\r");
    case TextKind::kLatex: skip_spaces(line); return of(latex, "{*[");
    case TextKind::kHtml: {
      for (std::size_t at = line.find("<h"); at != line.npos && at + 3 < line.size(); at = line.find("<h", at + 1))
        if (line[at + 2] >= '1' && line[at + 2] <= '6' && (line[at + 3] == '>' || line[at + 3] == ' '))
          return {.level = line[at + 2] - '0'};
      return {};
    }
    case TextKind::kMarkdown: {
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      std::size_t level = 0;
      while (indent + level < line.size() && line[indent + level] == '#') ++level;
      const bool ends = indent + level == line.size() || is_space(line[indent + level]);
      return {.level = indent <= 3 && level >= 1 && level <= 6 && ends ? static_cast<int>(level) : 0};
    }
    default: return {};
  }
}

std::size_t columns_of(std::string_view line) {
  std::size_t columns = 0;
  for (const char* at = line.data(); at < line.data() + line.size();) {
    const Character c = decode_utf8(at, line.data() + line.size());
    columns += c.code >= 0x1100 && c.code != kNoCharacter && !(c.code >= 0x2000 && c.code < 0x2E80) ? 2 : 1;
    at += c.bytes;
  }
  return columns;
}

char underline(std::string_view line, std::size_t columns, bool any_longer) {
  while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
  if (line.size() < 3 || std::string_view("=-*~^.\"'`+#:_").find(line[0]) == std::string_view::npos) return 0;
  if (line.find_first_not_of(line[0]) != line.npos) return 0;
  if (line.size() + 2 < columns || (!any_longer && line.size() > columns + 4)) return 0;
  return line[0];
}

TextKind text_kind(std::string_view name) {
  name = without_compression(name);
  const std::size_t slash = name.rfind('/');
  if (slash != name.npos) name.remove_prefix(slash + 1);
  if (name.ends_with(".rst.txt")) return TextKind::kRst;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos || dot == 0) return TextKind::kProse;
  const std::string_view end = name.substr(dot + 1);
  const auto is_one_of = [&](std::initializer_list<std::string_view> all) { return std::find(all.begin(), all.end(), end) != all.end(); };
  if (is_one_of({"md", "markdown", "mkd", "mdown"})) return TextKind::kMarkdown;
  if (is_one_of({"rst", "rest"})) return TextKind::kRst;
  if (is_one_of({"html", "htm", "xhtml"})) return TextKind::kHtml;
  if (is_one_of({"texi", "texinfo", "txi"})) return TextKind::kTexinfo;
  if (is_one_of({"tex", "ltx"})) return TextKind::kLatex;
  const bool manual =
      !end.empty() && end[0] >= '1' && end[0] <= '9' && end.size() <= 4 && std::none_of(end.begin() + 1, end.end(), is_digit);
  if (manual || is_one_of({"man", "mdoc", "roff"})) return TextKind::kRoff;  // "ls.1", "printf.3p"
  if (is_one_of({"c",  "h",   "cc",  "cpp", "cxx", "hpp",  "hh",  "hxx",   "cu",    "cuh", "tcc", "inl",   "inc", "java", "js", "mjs",
                 "ts", "tsx", "jsx", "go",  "rs",  "cs",   "kt",  "swift", "scala", "php", "css", "proto", "zig", "dart", "m",  "mm",
                 "S",  "s",   "asm", "dts", "el",  "lisp", "clj", "scm",   "hs",    "ml",  "sql", "lua",   "v",   "sv",   "vhd"}))
    return TextKind::kCode;
  if (is_one_of({"py", "pyi", "rb", "sh", "bash", "pl", "pm", "R", "r", "jl", "cmake", "mk", "tcl", "awk", "toml", "yaml", "yml"}))
    return TextKind::kScript;
  return TextKind::kProse;
}

}  // namespace flashgpt
