#include "data/source.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

#include <random>

#include "data/source_documents.h"
#include "data/survey.h"
#include "data/temporary_folder.h"

namespace flashgpt::testing {
namespace {

std::string gzip(const std::string& text, int level = 6) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* c = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
  if (window_log) ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log), ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  std::size_t made = 0;
  if (window_log) {  // as a stream, so that the frame keeps the window that was asked for
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    ZSTD_compressStream2(c, &to, &in, ZSTD_e_flush);
    while (ZSTD_compressStream2(c, &to, &in, ZSTD_e_end) != 0) continue;
    made = to.pos;
  } else {
    made = ZSTD_compress2(c, out.data(), out.size(), text.data(), text.size());
  }
  ZSTD_freeCCtx(c);
  out.resize(made);
  return out;
}

std::string random_text(std::uint32_t seed, std::size_t size) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < size) text += random() % 8 == 0 ? '\n' : static_cast<char>('a' + random() % 26);
  return text;
}

struct Read {
  std::string text, fault;
};
Read read_all(const std::string& path, std::size_t block = 100000) {
  ByteSource source(path);
  EXPECT_TRUE(static_cast<bool>(source));
  Read out;
  std::string buffer(block, '\0');
  for (std::size_t n; (n = source.read(buffer.data(), block)) > 0;) out.text.append(buffer, 0, n);
  EXPECT_EQ(source.read(buffer.data(), block), 0u);
  out.fault = source.fault();
  return out;
}

TEST(ByteSource, PlainGzipAndZstdReadTheSame) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 2, 3, 1000, 300000, 1500000}) {
    const std::string text = random_text(static_cast<std::uint32_t>(size), size);
    for (const std::string& bytes : {text, gzip(text), zstd(text)})
      for (const std::size_t block : {7, 100000}) {
        if (block == 7 && size > 1000) continue;
        const Read got = read_all(folder.file("f", bytes), block);
        EXPECT_TRUE(got.text == text) << size << " " << block;
        EXPECT_EQ(got.fault, "");
      }
  }
}

TEST(ByteSource, MembersAndFramesOneAfterTheOther) {
  const TemporaryFolder folder;
  const std::string a = random_text(1, 400000), b = random_text(2, 10), c = random_text(3, 300000);
  EXPECT_TRUE(read_all(folder.file("f.gz", gzip(a) + gzip("") + gzip(b) + gzip(c))).text == a + b + c);
  EXPECT_TRUE(read_all(folder.file("f.zst", zstd(a) + zstd("") + zstd(b) + zstd(c))).text == a + b + c);
  const std::string skippable("\x50\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
  EXPECT_TRUE(read_all(folder.file("g.zst", skippable + zstd(a) + skippable + zstd(b))).text == a + b);
  const Read padded = read_all(folder.file("p.gz", gzip(a) + std::string(700000, '\0')));  // as tapes leave it
  EXPECT_TRUE(padded.text == a);
  EXPECT_EQ(padded.fault, "");
}

TEST(ByteSource, CutShortAnywhere) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 3000);
  for (const bool is_zstd : {false, true}) {
    const std::string whole = is_zstd ? zstd(text) : gzip(text);
    for (std::size_t size = 4; size < whole.size(); size += 1 + size / 9) {
      const Read got = read_all(folder.file("f", whole.substr(0, size)));
      EXPECT_EQ(got.fault, is_zstd ? "zstd that is cut short" : "gzip that is cut short") << size;
      EXPECT_TRUE(text.starts_with(got.text));
    }
    // The second member is cut.
    EXPECT_NE(read_all(folder.file("f", whole + whole.substr(0, whole.size() / 2))).fault, "");
  }
}

TEST(ByteSource, DamageIsFoundAndDoesNoHarm) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 3000);
  std::mt19937 random(5);
  for (const bool is_zstd : {false, true})
    for (int i = 0; i < 200; ++i) {
      std::string bytes = is_zstd ? zstd(text) : gzip(text);
      const std::size_t at = 10 + random() % (bytes.size() - 10);  // past the header, parts of which mean nothing
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      const Read got = read_all(folder.file("f", bytes));
      EXPECT_TRUE(!got.fault.empty() || got.text == text) << at;
    }
  EXPECT_EQ(read_all(folder.file("f", gzip(text) + "garbage")).fault, "damaged gzip");
  EXPECT_EQ(read_all(folder.file("f", zstd(text) + "garbage")).fault, "damaged zstd");
}

TEST(ByteSource, BombsEndEarlyInBoundedMemory) {
  const TemporaryFolder folder;
  const std::string a(std::size_t{16} << 20, 'a');
  const std::string member = gzip(a, 9), frame = zstd(a);
  for (const auto& [name, part] : {std::pair{"gzip bomb", member}, {"zstd bomb", frame}}) {
    std::string bomb;
    while (bomb.size() < 2000000) bomb += part;  // 2 GB and more
    ByteSource source(folder.file("bomb", bomb));
    std::string buffer(std::size_t{1} << 20, '\0');
    std::int64_t got = 0;
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    for (std::size_t n; (n = source.read(buffer.data(), buffer.size())) > 0;) got += static_cast<std::int64_t>(n);
    getrusage(RUSAGE_SELF, &after);
    EXPECT_EQ(source.fault(), name);
    EXPECT_LT(got, std::int64_t{220} << 20);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 << 10);  // KiB
  }
  // A frame whose header asks for 1 GiB of history.
  EXPECT_EQ(read_all(folder.file("wide.zst", zstd(random_text(1, 300000), 30))).fault, "zstd with a window above 128 MiB");
  EXPECT_EQ(read_all(folder.file("long.zst", zstd(random_text(1, 300000), 27))).fault, "");
}

struct Documents {
  std::vector<std::string> texts;
  std::vector<Skipped> skipped;
  std::string fault;
};
Documents documents_of(const std::string& path, const SourceOptions& options = {}) {
  Documents out;
  DocumentReader reader(path, options, &out.skipped);
  while (reader.next()) {
    std::string& text = out.texts.emplace_back();
    for (std::string_view part = reader.text(); !part.empty(); part = reader.text()) text += part;
  }
  out.fault = reader.fault();
  return out;
}
std::string example(const Documents& d, const std::string& reason) {
  for (const Skipped& s : d.skipped)
    if (s.reason == reason) return std::to_string(s.files) + " " + s.example;
  return {};
}

using Texts = std::vector<std::string>;

TEST(Documents, JsonLines) {
  const TemporaryFolder folder;
  const std::string lines =
      "{\"text\": \"one\\nline\", \"id\": 1}\r\n"
      "\n"
      "{\"id\": 2}\n"
      "{\"text\": 5}\n"
      "{\"text\": \"\"}\n"
      "not json\n"
      "{\"text\": \"cut\n"
      "[\"text\", \"a list\"]\n"
      "{\"meta\": {\"text\": \"inner\"}, \"tags\": [\"text\", {\"text\": \"deep\"}], \"text\": \"\\u6f22 \\ud83d\\ude00\"}\n"
      "{\"text\": \"nul \\u0000\"}\n"
      "{\"text\": \"\xff\"}\n"
      "{\"text\": \"lone \\ud83d\"}\n"
      "{\"text\": {\"text\": \"nested\"}}\n"
      "{\"text\": \"last, without a newline\"}";
  const Documents d = documents_of(folder.file("x.jsonl", lines));
  EXPECT_EQ(d.texts, (Texts{"one\nline", "\xE6\xBC\xA2 \xF0\x9F\x98\x80", "last, without a newline"}));
  EXPECT_EQ(d.fault, "");
  EXPECT_EQ(example(d, "lines without text under \"text\""), "3 " + folder.path("x.jsonl:3 (no such key)"));
  EXPECT_EQ(example(d, "lines with empty text"), "1 " + folder.path("x.jsonl:5"));
  EXPECT_EQ(example(d, "lines that are no JSON").substr(0, 2), "4 ");
  EXPECT_NE(example(d, "lines that are no JSON").find("x.jsonl:6 (column 2"), std::string::npos) << example(d, "lines that are no JSON");
  EXPECT_EQ(example(d, "lines that are no JSON object"), "1 " + folder.path("x.jsonl:8"));
  EXPECT_EQ(example(d, "lines with NUL bytes"), "1 " + folder.path("x.jsonl:10"));

  // Compressed, another key, the format given instead of the name.
  EXPECT_EQ(documents_of(folder.file("x.jsonl.gz", gzip(lines))).texts, d.texts);
  EXPECT_EQ(documents_of(folder.file("x.ndjson.zst", zstd(lines))).texts, d.texts);
  EXPECT_EQ(documents_of(folder.file("x.txt", lines)).texts, Texts{lines});
  EXPECT_EQ(documents_of(folder.path("x.txt"), {.format = SourceFormat::kJsonLines}).texts, d.texts);
  EXPECT_EQ(documents_of(folder.path("x.jsonl"), {.format = SourceFormat::kText}).texts, Texts{lines});
  EXPECT_EQ(documents_of(folder.file("y.jsonl", "{\"body\": \"b\", \"text\": \"t\"}"), {.text_key = "body"}).texts, Texts{"b"});
  EXPECT_EQ(documents_of(folder.file("bom.jsonl", "\xEF\xBB\xBF{\"text\": \"t\"}\n")).texts, Texts{"t"});
}

TEST(Documents, HugeAndDeepLines) {
  const TemporaryFolder folder;
  const std::string good = "{\"text\": \"good\"}\n", big(3000000, 'x');
  std::string deep(1000000, '[');
  EXPECT_EQ(documents_of(folder.file("a.jsonl", good + "{\"text\": \"" + big + "\"}\n" + deep + "\n" + good)).texts,
            (Texts{"good", big, "good"}));
  {
    std::ofstream out(folder.path("b.jsonl"), std::ios::binary);
    out << good << "{\"text\": \"";
    for (int i = 0; i < 70; ++i) out << std::string(1 << 20, 'y');
    out << "\"}\n" << good;
  }
  const Documents d = documents_of(folder.path("b.jsonl"));
  EXPECT_EQ(d.texts, (Texts{"good", "good"}));
  EXPECT_EQ(example(d, "lines of more than 64 MiB"), "1 " + folder.path("b.jsonl:2"));
}

TEST(Documents, TextFiles) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 2500000);
  EXPECT_EQ(documents_of(folder.file("a.txt.gz", gzip(text))).texts, Texts{text});
  EXPECT_EQ(documents_of(folder.file("e.txt.gz", gzip(""))).fault, "empty");
  EXPECT_EQ(documents_of(folder.file("e.jsonl", "")).texts, Texts{});
  EXPECT_EQ(documents_of(folder.file("n.gz", gzip(std::string("a\0b", 3)))).fault, "binary");
  EXPECT_EQ(documents_of(folder.path("n.gz"), {.binary = true}).texts, (Texts{std::string("a\0b", 3)}));
  EXPECT_EQ(documents_of(folder.file("t.gz", gzip(text).substr(0, 900000))).fault, "gzip that is cut short");
  DocumentReader reader(folder.path("a.txt.gz"), {}, nullptr);  // next() passes over what is left
  ASSERT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
}

TEST(Survey, DuplicatesAndDamagedFilesAreLeftOut) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 5000), other = random_text(2, 5000);
  folder.file("in/a.txt", text);
  folder.file("in/b.txt.gz", gzip(text));
  folder.file("in/c.jsonl", "{\"text\": \"x\"}\n{\"text\": \"x\"}\n{\"text\": \"y\"}\n");
  folder.file("in/d.jsonl.gz", gzip("{\"text\": \"z\"}\n" + random_text(1, 500000)).substr(0, 200000));  // cut: all of it is left out
  folder.file("in/e.jsonl", "{\"text\": \"z\"}\n");                                                      // so this one counts
  FileList list = find_files({folder.path("in")}, {});
  Survey s = survey(list, {});
  ASSERT_EQ(s.files.size(), 3u);
  EXPECT_EQ(s.files[0].file.name, "a.txt");
  EXPECT_EQ(s.files[1].documents.size(), 3u);
  EXPECT_EQ(s.files[1].documents[1].bytes, 0);
  EXPECT_EQ(s.files[2].file.name, "e.jsonl");
  EXPECT_EQ(s.documents, 4);
  EXPECT_EQ(s.bytes, 5003);
  std::string all;
  for (const Skipped& k : list.skipped) all += std::to_string(k.files) + " " + k.reason + "; ";
  EXPECT_EQ(all, "2 duplicates; 1 gzip that is cut short; ");

  list = find_files({folder.path("in")}, {});
  s = survey(list, {.keep_duplicates = true});
  EXPECT_EQ(s.documents, 6);
  list = find_files({folder.path("in/d.jsonl.gz")}, {});
  EXPECT_NE(error_of([&] { survey(list, {}); }).find("d.jsonl.gz is of no use (gzip that is cut short)"), std::string::npos);
}

TEST(Survey, ManyDocuments) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += "{\"text\": \"" + std::to_string(i % 15000) + "\"}\n";
  FileList list = find_files({folder.file("a.jsonl", lines)}, {});
  EXPECT_EQ(survey(list, {}).documents, 15000);
  EXPECT_EQ(list.skipped[0].files, 5000);
}

}  // namespace
}  // namespace flashgpt::testing
