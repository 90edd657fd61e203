// A configuration: what was read is written as a file that reads back as the same.
#include "fuzz/targets.h"
#include "io/options.h"

namespace flashgpt::fuzz {
namespace {

enum class Kind { kOne, kTwo };

// One option of each kind.
struct Values {
  std::int64_t whole = 3;
  std::uint64_t seed = 1;
  double real = 0.5;
  bool flag = false;
  std::string text = "a";
  std::optional<std::int64_t> maybe_whole;
  std::optional<double> maybe_real;
  std::optional<bool> maybe_flag;
  std::optional<std::string> maybe_text;
  Kind kind = Kind::kOne;
  std::optional<Kind> maybe_kind;
};

void fill(OptionTable& table, Values& v) {
  table.add({.key = "whole", .field = &v.whole, .help = "", .min = 0, .max = 1e12, .size = true, .words = {{"auto", 0}}});
  table.add({.key = "a.seed", .field = &v.seed, .help = ""});
  table.add({.key = "a.real", .field = &v.real, .help = "", .min = 0, .above_min = true});
  table.add({.key = "a.flag", .field = &v.flag, .help = ""});
  table.add({.key = "a.text", .field = &v.text, .help = ""});
  table.add({.key = "a.b.maybe_whole", .field = &v.maybe_whole, .help = "", .absent = "none"});
  table.add({.key = "a.b.maybe_real", .field = &v.maybe_real, .help = "", .absent = "none"});
  table.add({.key = "a.b.maybe_flag", .field = &v.maybe_flag, .help = ""});
  table.add({.key = "a.b.maybe_text", .field = &v.maybe_text, .help = ""});
  table.add({.key = "c.kind", .field = choice(v.kind), .help = "", .words = {{"one", 0}, {"two", 1}}});
  table.add({.key = "c.maybe_kind", .field = choice(v.maybe_kind), .help = "", .words = {{"one", 0}, {"two", 1}}, .absent = "auto"});
}

}  // namespace

void yaml(std::string_view bytes) {
  Values v, again;
  OptionTable table, second;
  fill(table, v);
  fill(second, again);
  bool read = false;
  expect_answer([&] {
    table.load_text(std::string(bytes), "fuzz.yaml");
    read = true;
  });
  if (!read) return;
  const std::string written = table.to_yaml();
  try {
    second.load_text(written, "written.yaml");
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\nin:\n%s\n", e.what(), written.c_str());
    promise(false, "a configuration that was written can be read");
  }
  promise(second.to_yaml() == written, "a configuration reads back as the same");
}

}  // namespace flashgpt::fuzz
