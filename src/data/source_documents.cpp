#include "data/source_documents.h"

#include <nlohmann/json.hpp>

#include "flashgpt/error.h"
#include "io/json.h"

namespace flashgpt {

namespace {

bool names_json_lines(const std::string& path) {
  const std::string_view name = without_compression(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

// Takes the string under one key of the outermost object and builds nothing else, so a line costs no more memory than itself.
class TextOfKey {
 public:
  explicit TextOfKey(const std::string& key) : wanted_(key) {}

  bool null() { return other("null"); }
  bool boolean(bool) { return other("true or false"); }
  bool number_integer(Json::number_integer_t) { return other("a number"); }
  bool number_unsigned(Json::number_unsigned_t) { return other("a number"); }
  bool number_float(Json::number_float_t, const std::string&) { return other("a number"); }
  bool binary(Json::binary_t&) { return other("bytes"); }
  bool start_array(std::size_t) { return open("a list"); }
  bool end_array() { return close(); }
  bool start_object(std::size_t) {
    object = object || depth_ == 0;
    return open("an object");
  }
  bool end_object() { return close(); }
  bool string(std::string& s) {
    if (here()) found = true, text.swap(s), kind = nullptr;
    return true;
  }
  bool key(std::string& k) {
    is_next_ = depth_ == 1 && k == wanted_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) {
    error = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ...": our line number is not theirs.
    if (const std::size_t at = error.find("column"); at != error.npos) error.erase(0, at);
    return false;
  }

  bool object = false, found = false;
  const char* kind = nullptr;  // what is under the key instead of a string
  std::string text, error;

 private:
  bool here() { return std::exchange(is_next_, false) && depth_ == 1; }
  bool other(const char* what) {
    if (here()) found = false, kind = what;
    return true;
  }
  bool open(const char* what) {
    other(what);
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& wanted_;
  std::size_t depth_ = 0;
  bool is_next_ = false;
};

}  // namespace

DocumentReader::DocumentReader(const std::string& path, const SourceOptions& options, std::vector<Skipped>* skipped)
    : path_(path), options_(options), skipped_(skipped), source_(path) {
  json_ = options.format == SourceFormat::kJsonLines || (options.format == SourceFormat::kAuto && names_json_lines(path));
}

bool DocumentReader::fill() {
  block_.resize(kBlock);
  block_.resize(source_.read(block_.data(), kBlock));
  at_ = 0;
  return !block_.empty();
}

void DocumentReader::skip(const std::string& reason, const std::string& detail) {
  if (skipped_) add_skipped(*skipped_, reason, cat(path_, ":", line_number_, detail.empty() ? "" : " (" + detail + ")"));
}

bool DocumentReader::next() {
  if (!fault_.empty()) return false;
  if (json_) {
    while (next_line())
      if (text_of_line()) {
        given_ = false;
        return true;
      }
    if (fault_.empty()) fault_ = source_.fault();
    return false;
  }
  if (begun_) {
    while (!text().empty()) continue;
    return false;
  }
  begun_ = true;
  if (!fill()) {
    fault_ = source_.fault().empty() ? "empty" : source_.fault();
    return false;
  }
  if (!options_.binary && std::string_view(block_).substr(0, kProbe).find('\0') != std::string_view::npos) {
    fault_ = "binary";
    return false;
  }
  return true;
}

std::string_view DocumentReader::text() {
  if (json_) return std::exchange(given_, true) ? std::string_view() : std::string_view(value_);
  if (given_ && !fill()) {
    fault_ = source_.fault();
    return {};
  }
  given_ = true;  // the first block is there since next()
  return block_;
}

// The next line without its end; a longer one than kLongestLine is read past.
bool DocumentReader::next_line() {
  line_.clear();
  too_long_ = false;
  bool any = false;
  while (at_ < block_.size() || fill()) {
    any = true;
    const std::size_t end = block_.find('\n', at_);
    const std::size_t stop = end == block_.npos ? block_.size() : end;
    if (line_.size() + (stop - at_) > kLongestLine) too_long_ = true;
    if (!too_long_) line_.append(block_, at_, stop - at_);
    at_ = end == block_.npos ? stop : stop + 1;
    if (end != block_.npos) break;
  }
  line_number_ += any;
  return any;
}

bool DocumentReader::text_of_line() {
  if (too_long_) {
    skip("lines of more than 64 MiB", "");
    return false;
  }
  if (line_.find_first_not_of(" \t\r") == line_.npos) return false;
  TextOfKey found(options_.text_key);
  if (!Json::sax_parse(line_.begin(), line_.end(), &found)) {
    skip("lines that are no JSON", found.error);
    return false;
  }
  if (!found.object) {
    skip("lines that are no JSON object", "");
    return false;
  }
  if (!found.found) {
    skip(cat("lines without text under \"", options_.text_key, "\""), found.kind ? cat(found.kind, " is there") : "no such key");
    return false;
  }
  if (found.text.empty()) {
    skip("lines with empty text", "");
    return false;
  }
  if (!options_.binary && found.text.find('\0') != found.text.npos) {
    skip("lines with NUL bytes", "");
    return false;
  }
  value_.swap(found.text);
  return true;
}

}  // namespace flashgpt
