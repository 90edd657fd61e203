#include "data/corpora.h"

#include <glob.h>

#include <filesystem>
#include <optional>

#include "flashgpt/error.h"

namespace flashgpt {

namespace {

struct Candidate {
  const char* name;
  const char* description;
  std::vector<const char*> folders;  // patterns
  std::vector<std::string> suffixes;
  std::vector<std::string> excludes;
};

// Plain text only: what Debian ships compressed is left out. The first are the largest and cleanest.
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"linux-source",
       "source and documentation of the Linux kernel",
       {"/usr/src/linux-source-*"},
       {".c", ".h", ".rst", ".txt", ".S"},
       {"/asic_reg/"}},  // 390 MB of generated register numbers
      {"linux-doc", "documentation of the Linux kernel", {"/usr/share/doc/linux-doc-*"}, {".rst", ".rst.txt"}, {}},
      {"anarchism", "An Anarchist FAQ, long essays in English", {"/usr/share/doc/anarchism"}, {".md", ".txt"}, {}},
      {"python-doc", "documentation of Python", {"/usr/share/doc/python3*/html/_sources"}, {".txt", ".rst"}, {}},
      {"perl-doc", "documentation of Perl", {"/usr/share/perl/*/pod", "/usr/lib/*/perl/*/pod"}, {".pod"}, {}},
      {"debian-handbook", "the Debian Administrator's Handbook", {"/usr/share/doc/debian-handbook/html/en-US"}, {".html"}, {}},
      {"golang-src", "source of Go", {"/usr/share/go-*/src"}, {".go"}, {}},
      {"rust-src", "source of Rust's libraries", {"/usr/src/rustc-*", "/usr/lib/rustlib/src"}, {".rs"}, {}},
      {"system-headers",
       "C and C++ headers and Python's standard library",
       {"/usr/include", "/usr/lib/python3.*"},
       {".h", ".hpp", ".tcc", ".inc", ".py"},
       {"/dist-packages/", "/site-packages/"}},
  };
  return all;
}

std::optional<Corpus> look(const Candidate& c, const std::string& root, std::int64_t min_bytes) {
  Corpus corpus{.name = c.name, .description = c.description, .filter = {.suffixes = c.suffixes, .excludes = c.excludes}};
  for (const char* pattern : c.folders) {
    glob_t found{};
    if (glob((root + pattern).c_str(), 0, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i)
        if (std::filesystem::is_directory(found.gl_pathv[i])) corpus.paths.emplace_back(found.gl_pathv[i]);
    globfree(&found);
  }
  if (corpus.paths.empty()) return std::nullopt;
  for (const InputFile& f : find_files(corpus.paths, corpus.filter).files) {
    ++corpus.files;
    corpus.bytes += f.size;
  }
  if (corpus.bytes < min_bytes) return std::nullopt;
  return corpus;
}

}  // namespace

std::vector<Corpus> installed_corpora(const std::string& root, std::int64_t min_bytes) {
  std::vector<Corpus> out;
  for (const Candidate& c : candidates())
    if (std::optional<Corpus> corpus = look(c, root, min_bytes)) out.push_back(std::move(*corpus));
  return out;
}

Corpus default_corpus(const std::string& root, std::int64_t min_bytes) {
  for (const Candidate& c : candidates())
    if (std::optional<Corpus> corpus = look(c, root, min_bytes)) return std::move(*corpus);
  fail("this machine has no text to train on (", min_bytes,
       " bytes at least): name files or folders of your own, or install some (apt install python3-doc)");
}

}  // namespace flashgpt
