#include "data/hold_out.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>

#include "data/split_characters.h"
#include "data/split_scanner.h"
#include "flashgpt/error.h"
#include "io/file.h"

namespace flashgpt {

namespace {

constexpr std::int64_t kCutSearch = std::int64_t{64} << 10;  // how far back from a cut a better place is looked for
constexpr std::int64_t kAhead = 64;                          // bytes after it, to know where a character ends
constexpr std::int64_t kFewDocuments = 2;                    // on either side: fewer, and ends are held out instead

// The place of the strongest heading or paragraph in the text, the last of equals; 0: none.
std::size_t best_place(std::string_view text, TextKind kind) {
  LineScanner scanner(kind);
  std::vector<Place> places;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    scanner.line(static_cast<std::int64_t>(at), text.substr(at, std::min(end - at, LineScanner::kLongest)), places);
    at = end + 1;
  }
  scanner.flush(places);
  const Place* best = nullptr;
  for (const Place& p : places)
    if (p.offset > 0 && (!best || p.level <= best->level)) best = &p;
  return best ? static_cast<std::size_t>(best->offset) : 0;
}

// One document, cut in two about `at` bytes from its beginning.
class Parts {
 public:
  Parts(std::int64_t bytes, std::int64_t at, bool ends, TextKind kind, bool chapters, const Visitor& visitor)
      : at_(at), kind_(kind), chapters_(chapters), visitor_(visitor) {
    looking_ = ends && at < bytes;
    held_ = !ends && at == 0;
    // Not so far back that more than twice the part would be held out.
    from_ = std::max({std::int64_t{0}, at - kCutSearch, at - std::max(bytes - at, std::int64_t{1})});
    until_ = std::min(bytes, at + kAhead);
  }

  void text(std::string_view t) {
    if (looking_) {
      const std::string_view head = t.substr(0, static_cast<std::size_t>(std::clamp<std::int64_t>(from_ - seen_, 0, size(t))));
      pass(head);
      seen_ += size(head);
      t.remove_prefix(head.size());
      const std::string_view middle = t.substr(0, static_cast<std::size_t>(std::min(until_ - seen_, size(t))));
      window_ += middle;
      seen_ += size(middle);
      t.remove_prefix(middle.size());
      if (seen_ < until_) return;
      cut();
    }
    seen_ += size(t);
    pass(t);
  }
  void end() {
    if (open_) visitor_.end(held_);
  }

 private:
  static std::int64_t size(std::string_view t) { return static_cast<std::int64_t>(t.size()); }
  void pass(std::string_view t) {
    if (t.empty()) return;
    visitor_.text(t, held_);
    open_ = true;
  }
  void cut() {
    const std::string_view window = window_;
    const auto wanted = static_cast<std::size_t>(at_ - from_);
    std::size_t at = chapters_ ? best_place(window.substr(0, wanted + 1), kind_) : 0;
    if (at == 0)
      if (const std::size_t newline = window.substr(0, wanted).rfind('\n'); newline != window.npos) at = newline + 1;
    if (at == 0) at = character_cut(window, wanted);
    pass(window.substr(0, at));
    end();
    looking_ = open_ = false;
    held_ = true;
    pass(window.substr(at));
    window_.clear();
  }

  std::int64_t at_, from_ = 0, until_ = 0, seen_ = 0;
  TextKind kind_;
  bool chapters_, looking_ = false, held_ = false, open_ = false;
  std::string window_;
  const Visitor& visitor_;
};

}  // namespace

double fraction_of(std::uint64_t hash) { return static_cast<double>((hash * 0xD6E8FEB86659FD93u) >> 11) * 0x1p-53; }

HeldOut hold_out(const Survey& survey, double fraction) {
  HeldOut out;
  std::int64_t held = 0, held_documents = 0;
  std::uint64_t least = ~std::uint64_t{0};
  std::size_t first = 0;  // the document that would be held out before all others
  for (const SurveyedFile& f : survey.files)
    for (const SurveyedDocument& d : f.documents) {
      if (d.bytes == 0) continue;
      const bool val = fraction_of(d.hash) < fraction;
      if (d.hash * 0xD6E8FEB86659FD93u <= least) least = d.hash * 0xD6E8FEB86659FD93u, first = out.train.size();
      out.train.push_back(val ? 0 : d.bytes);
      if (val) held += d.bytes, ++held_documents;
    }
  out.train_bytes = survey.bytes - held;
  if (fraction == 0) return out;
  const double share = static_cast<double>(held) / static_cast<double>(survey.bytes);
  if (held_documents >= kFewDocuments && survey.documents - held_documents >= kFewDocuments && share >= fraction / 2 &&
      share <= 2 * fraction)
    return out;

  std::size_t i = 0;
  held = 0;
  for (const SurveyedFile& f : survey.files)
    for (const SurveyedDocument& d : f.documents) {
      if (d.bytes == 0) continue;
      const auto wanted = static_cast<std::int64_t>(std::llround(static_cast<double>(d.bytes) * (1 - fraction)));
      out.train[i] = d.bytes < 2 ? d.bytes : std::clamp(wanted, std::int64_t{1}, d.bytes - 1);
      held += d.bytes - out.train[i++];
    }
  out.ends = held > 0;
  if (!out.ends) {  // documents of one byte cannot be cut
    require(survey.documents > 1, "the text is too short to hold some of it out (", survey.bytes, survey.bytes == 1 ? " byte" : " bytes",
            "): give more text, or val_fraction = 0 to train without validation");
    out.train[first] = 0;
    held = 1;
  }
  out.train_bytes = survey.bytes - held;
  return out;
}

void walk(const Survey& survey, const HeldOut& held_out, const SourceOptions& options, bool chapters, const Visitor& visitor) {
  std::size_t i = 0;
  for (const SurveyedFile& f : survey.files) {
    DocumentReader reader(f.file.path, options, nullptr);
    require(static_cast<bool>(reader), "cannot read ", f.file.path, ": ", std::strerror(errno));
    const auto unchanged = [&](bool so) { require(so, f.file.path, " changed while it was read: prepare the data again"); };
    const TextKind kind = text_kind(f.file.name);
    for (std::size_t n = 0; n < f.documents.size(); ++n) {
      const SurveyedDocument& d = f.documents[n];
      unchanged(reader.next());
      if (d.bytes == 0) continue;
      if (visitor.begin) visitor.begin(f, n);
      Parts parts(d.bytes, held_out.train[i++], held_out.ends, kind, chapters, visitor);
      Checksum64 sum;
      std::int64_t left = d.bytes;
      for (std::string_view part; left > 0 && !(part = reader.text()).empty();) {
        part = part.substr(0, static_cast<std::size_t>(std::min<std::int64_t>(left, static_cast<std::int64_t>(part.size()))));
        sum.update(std::as_bytes(std::span(part)));
        left -= static_cast<std::int64_t>(part.size());
        parts.text(part);
      }
      unchanged(left == 0 && document_hash(sum.value(), d.bytes) == d.hash);
      parts.end();
    }
  }
}

}  // namespace flashgpt
