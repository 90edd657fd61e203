// Options: one table of keys bound to the fields of plain structs. From the same row come the key of a YAML file, the dotted override
// (train_params.batch_size=8), the flag (--batch-size 8), the line of --help and the line of the saved configuration.
//
//   OptionTable table;
//   table.add({.key = "train_params.batch_size", .field = &config.batch_size, .help = "rows of an optimizer step", .min = 1});
//   table.add({.key = "train_params.recompute", .field = choice(config.recompute), .help = "...",
//              .words = {{"none", 0}, {"act", 1}, {"mlp", 2}, {"block", 3}}, .absent = "auto"});
//   const Arguments arguments = table.split(args);
//   for (const std::string& file : arguments.configs) table.load(file);
//   table.apply(arguments);
//
// Errors name the file and line or the flag, the key, the value and what was expected. An unknown key or flag and a wrong value on the
// command line: kUsage, with the nearest known name. An unknown key or a wrong value in a file: kInvalid.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace flashgpt {

// An enum (or int) behind the numbers of Option::words. Nothing: absent, for fields that are optional.
struct ChoiceField {
  std::function<std::optional<int>()> get;
  std::function<void(std::optional<int>)> set;
};

template <class E> ChoiceField choice(E& field) {
  return {[&field] { return std::optional<int>(static_cast<int>(field)); }, [&field](std::optional<int> v) { field = static_cast<E>(*v); }};
}
template <class E> ChoiceField choice(std::optional<E>& field) {
  return {[&field] { return field ? std::optional<int>(static_cast<int>(*field)) : std::nullopt; },
          [&field](std::optional<int> v) { field = v ? std::optional<E>(static_cast<E>(*v)) : std::nullopt; }};
}

// The kind of an option follows from its field: whole number, real number, yes or no, text, choice.
using Field = std::variant<std::int64_t*, std::uint64_t*, double*, bool*, std::string*, std::optional<std::int64_t>*,
                           std::optional<double>*, std::optional<bool>*, std::optional<std::string>*, ChoiceField>;

struct Option {
  std::string key;   // "section.name", lower case and underscores; without a section too
  Field field;       // the value at add() is the default; must outlive the table
  std::string help;  // one sentence or two, without the default
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();  // inclusive
  bool above_min = false, below_max = false;                                                             // min, or max, itself is excluded
  bool size = false;  // a whole number that may be written with K, M, G, T (powers of 1000) or KiB, MiB, GiB, TiB (of 1024)
  std::vector<std::pair<std::string, std::int64_t>>
      words;               // a choice's words with their numbers; a number's words for special values ("auto", 0)
  std::string absent;      // optional fields: the word that means "not set"
  std::string flag;        // empty: "--" and the name in kebab case
  std::string bare;        // text fields: the value when the flag stands alone; empty: it needs one
  std::string value_name;  // in --help; empty: N, X, SIZE, TEXT or the words
  bool in_file = true;     // false: only a flag (where to write, what to resume)
  bool path = false;       // text: an argument must not leave it empty, as an unset variable of a shell does
};

struct Setting {
  std::size_t option;  // row of the table
  std::string value;
  std::string where;       // "run.yaml:4" or "--batch-size"
  bool null = false;       // YAML's null: absent
  bool from_file = false;  // a wrong value is kInvalid, not kUsage
};

struct Arguments {
  bool help = false;                 // --help or -h
  std::vector<std::string> configs;  // of each --config
  std::vector<std::string> positionals;
  std::vector<Setting> settings;
};

// An option as people are told of it: for --help, shell completion and the man page.
struct OptionText {
  std::string section;             // title: "Training (train_params)"
  std::string key;                 // "" when it is only a flag
  std::string flag;                // "--batch-size"
  std::string value;               // "N", "none|act|mlp|block|auto"; empty: yes or no, and --no-NAME is known too
  std::vector<std::string> words;  // that the value may be
  bool value_may_be_left_out = false;
  bool is_text = false;  // maybe the name of a file
  std::string help, by_default;
};

class OptionTable {
 public:
  OptionTable();
  void add(Option option);
  // Title of a section in --help, in the order of the first key of each; without one the section's own name is the title.
  void title(const std::string& section, const std::string& text);

  // Sorts the arguments of a command: --flag VALUE, --flag=VALUE, --flag and --no-flag for yes or no, key=value, --config FILE, --help;
  // after "--" all are positionals. Unknown flags and keys and empty positionals are errors; values are read by apply().
  Arguments split(const std::vector<std::string>& args) const;
  void apply(const Arguments& arguments);                            // a later one wins over an earlier one
  void load(const std::filesystem::path& path);                      // YAML; a key given twice in a file is an error
  void load_text(const std::string& text, const std::string& file);  // file: for messages
  void set(const Setting& setting);
  // Sets again all that was given. After a field got another default from elsewhere (a preset), so that what the user said holds.
  void reapply();

  bool given(std::string_view key) const;         // by a file or an argument
  std::string where(std::string_view key) const;  // given where; "" when it was not
  std::string text(std::string_view key) const;   // the value as to_yaml() writes it; "" when absent without a word for it

  // All options that belong in a file, with their values now, as a file that load() takes.
  std::string to_yaml() const;
  std::string help(std::size_t width = 100) const;
  std::vector<OptionText> texts() const;  // in the order of --help

  const std::vector<Option>& options() const { return options_; }
  std::vector<std::string> keys() const;

 private:
  std::size_t row(std::string_view key) const;  // of a key that must be there
  std::size_t row_or_fail(const std::string& key, const std::string& where) const;

  std::vector<Option> options_;
  std::vector<std::string> defaults_;  // text at add()
  std::vector<std::optional<Setting>> given_;
  std::map<std::string, std::size_t, std::less<>> by_key_, by_flag_;
  std::map<std::string, std::string> titles_;
};

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) to `name`; empty when there is none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);
// The same, but empty when even the nearest has little in common with the name, so that it would only mislead.
std::string similar(std::string_view name, const std::vector<std::string>& candidates);

// Error(kUsage), naming the first of those there are too many of, unless a command got at most so many positionals.
void limit_positionals(const Arguments& arguments, const std::string& command, std::size_t most);

}  // namespace flashgpt
