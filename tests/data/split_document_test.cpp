#include <gtest/gtest.h>

#include <random>

#include "data/split.h"
#include "data/split_characters.h"
#include "data/temporary_folder.h"

namespace flashgpt::testing {
namespace {

struct Pieces {
  std::vector<std::string> texts;
  std::vector<int> levels;          // of each cut
  std::vector<std::string> titles;  // of each cut
};

Pieces pieces_of(const std::string& text, std::int64_t max, TextKind kind = TextKind::kProse, SplitMode mode = SplitMode::kChapters,
                 std::size_t step = 1000) {
  Pieces out;
  std::string open;
  std::int64_t offset = 0;
  Splitter splitter(mode, max,
                    {.text = [&](std::string_view t) { open += t; },
                     .end_piece =
                         [&] {
                           offset += static_cast<std::int64_t>(open.size());
                           out.texts.push_back(std::exchange(open, ""));
                         },
                     .cut =
                         [&](const Cut& cut) {
                           EXPECT_EQ(cut.offset, offset + static_cast<std::int64_t>(open.size()));
                           out.levels.push_back(cut.level);
                           out.titles.emplace_back(cut.title);
                         }});
  splitter.begin(kind);
  for (std::size_t at = 0; at < text.size(); at += step) splitter.append(std::string_view(text).substr(at, step));
  splitter.end();
  std::string all;
  for (const std::string& t : out.texts) all += t;
  EXPECT_TRUE(all == text);
  EXPECT_EQ(out.levels.size() + (text.empty() ? 0 : 1), out.texts.size());
  for (const std::string& t : out.texts) EXPECT_LE(static_cast<std::int64_t>(t.size()), std::max<std::int64_t>(max, 64));
  return out;
}

std::string lines(std::size_t bytes, const std::string& line = "Some text that goes on and says nothing, as text does.\n") {
  std::string text;
  while (text.size() < bytes) text += line;
  return text;
}

using Titles = std::vector<std::string>;

// Each of the heads begins a part of 3,000 bytes; with room for 4,000 every one must be a cut.
Titles titles_of(const std::vector<std::string>& heads, TextKind kind, const std::string& line = lines(1)) {
  std::string text;
  for (const std::string& h : heads) text += h + lines(3000, line) + "\n";
  return pieces_of(text, 4000, kind).titles;
}

TEST(SplitDocument, ShortOnesStayWhole) {
  EXPECT_EQ(pieces_of("", 16).texts, Titles{});
  for (const SplitMode mode : {SplitMode::kNone, SplitMode::kFixed, SplitMode::kChapters})
    EXPECT_EQ(pieces_of("# A\n\nb\n\n# C\n", 16, TextKind::kMarkdown, mode).texts.size(), 1u);
  EXPECT_NE(error_of([] { Splitter(SplitMode::kFixed, 3, {}); }).find("max_document = 3"), std::string::npos);
}

TEST(SplitDocument, ChineseBooks) {
  const std::string line = "　　这一天的事情很多，他走了很远的路，第三章的内容他早已忘了，天色也渐渐暗了下来。\n";
  const Titles heads = {"第一章 出门\n",
                        "　　第二章　回家\n",
                        "第三回 张天师祈禳瘟疫　洪太尉误走妖魔\n",
                        "第12节 标题\n",
                        "第十三章\n",
                        "第１４章：风起\n",
                        "【第十五章 云涌】\n",
                        "第 16 章 标题\n",
                        "卷二\n",
                        "后记\n",
                        "附录 A. 许可证\n",
                        "\n十、总结\n"};
  const Titles got = titles_of(heads, TextKind::kProse, line);
  ASSERT_EQ(got.size(), heads.size() - 1);
  EXPECT_EQ(got[0], "　　第二章　回家");
  EXPECT_EQ(got[5], "【第十五章 云涌】");
  EXPECT_EQ(got.back(), "十、总结");
  // Not headings: sentences, counts, articles in the middle of a line.
  for (const char* s : {"第一章的内容是这样的。", "第三，他不来", "第一次见面", "第二天，他走了", "第一章我们讲了很多，这一章继续讲",
                        "第五部电影很好看，我们都喜欢。", "前言不搭后语的人很多", "卷起袖子", "一、二、三，走！",
                        "第九章 他说了一句很长很长的话。然后走了。"})
    EXPECT_EQ(prose_heading(s).level, 0) << s;
  EXPECT_EQ(prose_heading("第一卷 风起").level, 1);
  EXPECT_EQ(prose_heading("第一卷 风起 第三章 云涌").level, 2);
  EXPECT_EQ(prose_heading("第三节 方法").level, 3);
  EXPECT_EQ(prose_heading("第二十三條 本法所稱之人，謂自然人。").level, 5);
}

TEST(SplitDocument, EnglishBooks) {
  const Titles heads = {"\nCHAPTER I\n\n",
                        "\nChapter 2\n\n",
                        "\nChapter Three. In Which He Goes\n\n",
                        "\nPART II\n\n",
                        "\nBook the Third\n\n",
                        "\n                 CHAPTER XIV\n\n",
                        "\n**Chapter 15**\n\n",
                        "\nAppendix A: Licences\n\n",
                        "\nXVI.\n\n",
                        "\n2.1 Another Title\n\n",
                        "\nEPILOGUE\n\n",
                        "\nACT 2\n\n"};
  const Titles got = titles_of(heads, TextKind::kProse);
  EXPECT_EQ(got.size(), heads.size() - 1) << ::testing::PrintToString(got);
  for (const char* s :
       {"Chapter 3 describes how this is done", "Part of the way", "Book one of them today, please", "part 3", "I", "I am", "Chapter 3,",
        "CHAPTER IV ........ 17", "3 apples were left", "A. Smith", "Section 4 of the law says that", "Act now"})
    EXPECT_TRUE(prose_heading(s).level == 0 || std::string(s) == "I") << s;
  EXPECT_EQ(prose_heading("PART ONE").level, 1);
  EXPECT_EQ(prose_heading("CHAPTER LXIV").level, 2);
  EXPECT_EQ(prose_heading("Chapter the First").level, 2);
  EXPECT_EQ(prose_heading("2.1.3. Deeper").level, 4);
  // Only between blank lines: this one begins a paragraph and no chapter.
  EXPECT_EQ(pieces_of(lines(3000) + "\nCHAPTER II\nwas read aloud.\n" + lines(3000), 4000).levels, std::vector<int>{kParagraphLevel});
}

TEST(SplitDocument, PartsBeforeChaptersBeforeSections) {
  std::string text;
  for (int part = 1; part <= 3; ++part) {
    text += "\n\nPART " + std::to_string(part) + "\n\n";
    for (int chapter = 1; chapter <= 3; ++chapter) text += "\nChapter " + std::to_string(chapter) + "\n\n" + lines(1000) + "\n";
  }
  const Pieces got = pieces_of(text, 8000);  // a part is some 3,200 bytes: two fit, a third does not
  EXPECT_EQ(got.titles, Titles{"PART 3"});
  EXPECT_EQ(got.levels, std::vector<int>{1});
  EXPECT_EQ(pieces_of(text, 4000).titles, (Titles{"PART 2", "PART 3"}));
  EXPECT_EQ(pieces_of(text, 1300).levels.size(), 8u);  // every chapter
}

TEST(SplitDocument, TablesOfContentsAreNoChapters) {
  std::string text = "A BOOK\n\nCONTENTS\n\n";
  for (int i = 1; i <= 20; ++i) text += "Chapter " + std::to_string(i) + "\n\n";
  const std::size_t contents = text.size();
  text += "\n\n\n";
  for (int i = 1; i <= 20; ++i) text += "Chapter " + std::to_string(i) + "\n\n" + lines(900) + "\n";
  const Pieces got = pieces_of(text, 1100);  // contents and a chapter do not fit
  EXPECT_EQ(got.titles.size(), 20u);
  EXPECT_EQ(got.titles[0], "Chapter 1");
  EXPECT_GE(got.texts[0].size(), contents);
  for (const int level : got.levels) EXPECT_EQ(level, 2);
}

TEST(SplitDocument, Markdown) {
  const Titles heads = {"# One\n\n", "## Two\n\n", "Three\n=====\n\n", "Four\n----\n\n", "\n<a name=\"x\"></a>\n\n# Five #\n\n"};
  const Titles got = titles_of(heads, TextKind::kMarkdown, "text\n");
  EXPECT_EQ(got, (Titles{"## Two", "Three", "Four", "# Five #"}));
  // Nothing inside a fence, and no fence inside a fence of the other kind.
  const std::string code = "```sh\n" + lines(1500, "# a comment\nmake\n\n~~~\n") + "```\n\n";
  const Pieces p = pieces_of("# A\n\n" + code + "# B\n\n" + code + "# C\n\n" + code, 2000, TextKind::kMarkdown);
  EXPECT_EQ(p.titles, (Titles{"# B", "# C"}));
  EXPECT_EQ(marked_heading("#hashtag", TextKind::kMarkdown).level, 0);
  EXPECT_EQ(marked_heading("    # code", TextKind::kMarkdown).level, 0);
  EXPECT_EQ(marked_heading("####### seven", TextKind::kMarkdown).level, 0);
}

TEST(SplitDocument, RestructuredTextAndInfo) {
  const Titles heads = {"=====\nTitle\n=====\n\n", ".. _label:\n\nOne\n===\n\n", "Two 漢字\n--------\n\n", "Three\n=====\n\n",
                        "\n***********\n  Centred\n***********\n\n"};
  std::string text;
  for (const std::string& h : heads) text += h + lines(3000) + "\n";
  const Pieces got = pieces_of(text, 4000, TextKind::kRst);
  EXPECT_EQ(got.titles, (Titles{"One", "Two 漢字", "Three", "  Centred"}));
  EXPECT_EQ(got.texts[1].substr(0, 11), ".. _label:\n");
  EXPECT_EQ(got.texts[4].substr(0, 5), "*****");
  EXPECT_EQ(got.levels, (std::vector<int>{2, 3, 2, 4}));  // in the order in which they appeared
  // An info file: the separator and the head of the node go with the title.
  const std::string node = "\x1f\nFile: a.info,  Node: N,  Up: Top\n\n";
  const Pieces info = pieces_of(node + "1 First\n*******\n\n" + lines(3000) + node + "1.1 Second\n==========\n\n" + lines(3000), 4000);
  EXPECT_EQ(info.titles, Titles{"1.1 Second"});
  EXPECT_EQ(info.texts[1][0], '\x1f');
}

TEST(SplitDocument, ManualsAndOtherMarks) {
  EXPECT_EQ(titles_of({".TH LS 1\n", ".SH NAME\n", ".SS Options\n", ".Sh SYNOPSIS\n"}, TextKind::kRoff).size(), 3u);
  EXPECT_EQ(pieces_of(lines(2500, ".IP \"an item\" 4\nits text\n"), 1000, TextKind::kRoff).levels, (std::vector<int>{7, 7}));
  EXPECT_EQ(titles_of({"@chapter A\n", "@node B\n@section B\n", "@unnumberedsec C\n"}, TextKind::kTexinfo),
            (Titles{"@section B", "@unnumberedsec C"}));
  EXPECT_EQ(titles_of({"\\chapter{A}\n", "\\section*{B}\n", "  \\subsection{C}\n"}, TextKind::kLatex).size(), 2u);
  EXPECT_EQ(titles_of({"<h1>A</h1>\n", "<div><h2 class=\"x\">B</h2>\n"}, TextKind::kHtml).size(), 1u);
  for (const auto& [name, kind] : {std::pair{"a/b.md.gz", TextKind::kMarkdown},
                                   {"x.rst.txt", TextKind::kRst},
                                   {"ls.1", TextKind::kRoff},
                                   {"printf.3p.gz", TextKind::kRoff},
                                   {"a.c", TextKind::kCode},
                                   {"a.py.zst", TextKind::kScript},
                                   {"README", TextKind::kProse},
                                   {"v1.2/notes", TextKind::kProse},
                                   {"book.txt", TextKind::kProse},
                                   {"data.2023", TextKind::kProse},
                                   {".gz", TextKind::kProse}})
    EXPECT_EQ(text_kind(name), kind) << name;
}

TEST(SplitDocument, CodeAtDefinitions) {
  std::string c, py;
  for (int i = 0; i < 12; ++i) {
    const std::string n = std::to_string(i);
    c += "/* Function " + n + ".\n\nAn inner paragraph at the margin.\n */\nint f" + n + "(int x)\n{\n";
    py += "# about " + n + "\n@decorated\ndef f" + n + "(x):\n    \"\"\"Says.\n\nAt the margin.\n\"\"\"\n";
    for (int k = 0; k < 10; ++k) {
      c += "\tx += " + std::to_string(k) + ";\n\n#ifdef DEEP\n\tx--;\n#endif\n\nout:\n\tx *= 2;\n\n";
      py += "    x += " + std::to_string(k) + "\n\n    x -= 1\n\n";
    }
    c += "}\n\n";
    py += "    return x\n\n\n";
  }
  const Pieces in_c = pieces_of(c, 2000, TextKind::kCode), in_py = pieces_of(py, 1000, TextKind::kScript);
  EXPECT_GE(in_c.titles.size(), 3u);
  EXPECT_GE(in_py.titles.size(), 3u);
  for (const std::string& t : in_c.titles) EXPECT_EQ(t.substr(0, 12), "/* Function ") << t;
  for (const std::string& t : in_py.titles) EXPECT_EQ(t.substr(0, 8), "# about ") << t;
  EXPECT_EQ(pieces_of("void f() {\n" + lines(3000, "  x();\n") + "}\nvoid g() {\n" + lines(3000, "  y();\n") + "}\n", 4000, TextKind::kCode)
                .titles,
            Titles{"void g() {"});
  // Methods of one long class.
  std::string methods = "class A:\n";
  for (int i = 0; i < 9; ++i) methods += "\n    def f" + std::to_string(i) + "(self):\n" + lines(900, "        x = 1\n\n");
  EXPECT_EQ(pieces_of(methods, 1500, TextKind::kScript).levels, (std::vector<int>(8, 4)));
}

TEST(SplitDocument, ParagraphsLinesSentencesSpaces) {
  std::string paragraphs;
  for (int i = 0; i < 30; ++i) paragraphs += lines(300, "A line of a paragraph.\n") + "\n";
  const Pieces p = pieces_of(paragraphs, 1000);
  for (const int level : p.levels) EXPECT_EQ(level, kParagraphLevel);
  EXPECT_EQ(pieces_of(lines(3000, "a line\n"), 1000).levels, (std::vector<int>{8, 8, 8}));
  std::string sentence = lines(5000, "It was said. \"And then?\" Nothing came of it! ");
  for (const int level : pieces_of(sentence, 1000).levels) EXPECT_EQ(level, 9);
  sentence = lines(5000, "他说了一句话。“然后呢？”没有人回答！");
  for (const std::string& t : pieces_of(sentence, 1000).texts) EXPECT_EQ(t.substr(0, 3) == "”", false);
  for (const int level : pieces_of(sentence, 1000).levels) EXPECT_EQ(level, 9);
  for (const int level : pieces_of(lines(5000, "words without an end "), 1000).levels) EXPECT_EQ(level, 10);
  for (const int level : pieces_of(std::string(5000, 'x'), 1000).levels) EXPECT_EQ(level, 11);
  EXPECT_EQ(pieces_of(std::string(5000, 'x'), 1000).texts.size(), 5u);
  // A heading before one huge line is seen before its newline.
  EXPECT_EQ(pieces_of(lines(2000) + "\nChapter 2\n\n" + std::string(9000, 'x') + "\n", 4000).titles[0], "Chapter 2");
}

TEST(SplitDocument, NeverInsideACharacter) {
  const std::vector<std::string> characters = {"a",
                                               "\r\n",
                                               "漢",
                                               "e\u0301",
                                               "\U0001F469\u200D\U0001F52C",
                                               "\U0001F1E9\U0001F1EA",
                                               "\U0001F44D\U0001F3FD",
                                               "\u1112\u1161\u11AB",
                                               "é",
                                               "\u2764\uFE0F",
                                               "नि",
                                               " ",
                                               "\n"};
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::size_t> ends{0};
    std::string text;
    while (text.size() < 1500) {
      const std::string& c = characters[random() % characters.size()];
      // Two flags make no other pair, \r stays before \n, and marks stay on what they follow; a joiner is never last.
      text += c;
      ends.push_back(text.size());
    }
    for (std::size_t at = 0; at <= text.size(); ++at) {
      const bool end = std::binary_search(ends.begin(), ends.end(), at);
      EXPECT_EQ(between_characters(text, at), end) << round << " " << at;
    }
    for (const SplitMode mode : {SplitMode::kFixed, SplitMode::kChapters})
      for (const std::int64_t max : {16, 17, 33, 100, 1000}) {
        std::size_t at = 0;
        for (const std::string& piece : pieces_of(text, max, TextKind::kProse, mode, 1 + random() % 300).texts) {
          at += piece.size();
          EXPECT_TRUE(std::binary_search(ends.begin(), ends.end(), at)) << round << " " << max << " " << at;
        }
      }
  }
}

TEST(SplitDocument, AnyBytesAndAnyStep) {
  std::mt19937 random(3);
  const std::vector<std::string> parts = {
      "第一章 x\n",          "Chapter 2\n\n", "# A\n",   "=====\n", "\n",     "\n\n\n", "```\n", "\x1f\n", "\xff\xfe",
      std::string("\0", 1),  ".SH\n",         "/*",      "*/",      "\"\"\"", "word ",  "漢。",  "\r\n",   "\xF0\x9F",
      std::string(700, 'z'), "<h1>",          "@node\n", "a\n---\n"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    while (text.size() < 4000) text += parts[random() % parts.size()];
    const TextKind kind = static_cast<TextKind>(random() % 9);
    const std::int64_t max = 16 + static_cast<std::int64_t>(random() % 2000);
    const Pieces one = pieces_of(text, max, kind, SplitMode::kChapters, 4096);
    for (const std::string& t : one.texts) EXPECT_FALSE(t.empty());
    const Pieces other = pieces_of(text, max, kind, SplitMode::kChapters, 1 + random() % 500);
    EXPECT_EQ(one.texts, other.texts);  // however it comes
  }
  // Combining marks without an end: cut between code points at last.
  std::string marks = "a";
  while (marks.size() < 3000) marks += "\u0301";
  for (const std::string& t : pieces_of(marks, 500).texts) EXPECT_NE(static_cast<unsigned char>(t[0]) & 0xC0, 0x80);
}

}  // namespace
}  // namespace flashgpt::testing
