#include "data/split.h"

#include <algorithm>

#include "data/split_characters.h"
#include "flashgpt/error.h"

namespace flashgpt {

namespace {

constexpr int kLineLevel = 8, kSentenceLevel = 9, kSpaceLevel = 10, kCharacterLevel = 11;
constexpr std::size_t kAhead = 1024;    // what follows the room is looked at so far: the line after a heading
constexpr std::size_t kCharacter = 64;  // so is a character, to know where it ends
constexpr std::int64_t kGrain = 4096;   // places nearer than a part in so many of the room are one
constexpr std::size_t kLongestTitle = 100;

// Ends of sentences; a closing quote may follow.
bool ends_sentence(std::string_view text) {
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view quote : {"\"", "'", ")", "”", "’", "」", "』", "）"})
      if (text.ends_with(quote)) text.remove_suffix(quote.size()), more = true;
  }
  for (const std::string_view end : {"。", "！", "？", "…", ".", "!", "?"})
    if (text.ends_with(end)) return true;
  return false;
}

}  // namespace

const char* cut_name(int level) {
  constexpr const char* names[] = {"",          "heading 1", "heading 2", "heading 3", "heading 4", "heading 5",
                                   "heading 6", "paragraph", "line",      "sentence",  "space",     "character"};
  return names[std::clamp(level, 0, kCharacterLevel)];
}

Splitter::Splitter(SplitMode mode, std::int64_t max_bytes, Sink sink)
    : mode_(mode), max_(static_cast<std::size_t>(max_bytes)), sink_(std::move(sink)) {
  require(mode == SplitMode::kNone || (max_bytes >= kLeast && max_bytes <= kMost), "max_document = ", max_bytes, ", expected from ", kLeast,
          " to ", kMost, " bytes");
}

void Splitter::begin(TextKind kind) {
  scanner_ = LineScanner(kind);
  buffer_.clear();
  places_.clear();
  begin_ = 0;
  line_ = seen_ = 0;
  line_told_ = passed_ = false;
}

void Splitter::append(std::string_view text) {
  if (mode_ == SplitMode::kNone) {
    passed_ = passed_ || !text.empty();
    if (!text.empty()) sink_.text(text);
    return;
  }
  while (!text.empty()) {
    // Just as much as decides on a cut, so that pieces do not depend on how the text comes.
    const std::size_t n = std::min(text.size(), max_ + kAhead + 1 - buffer_.size());
    buffer_.append(text.substr(0, n));
    text.remove_prefix(n);
    scan(buffer_.size());
    emit_ripe(kAhead);
  }
}

void Splitter::end() {
  if (mode_ == SplitMode::kNone) {
    if (passed_) sink_.end_piece();
    return;
  }
  emit_ripe(0);
  if (buffer_.empty()) return;
  sink_.text(buffer_);
  sink_.end_piece();
  buffer_.clear();
}

// Lines that are whole, and long ones as soon as it is known that they are no headings.
void Splitter::scan(std::size_t end) {
  if (mode_ != SplitMode::kChapters) return;
  const std::string_view text = buffer_;
  while (seen_ < end) {
    const std::size_t newline = text.find('\n', seen_);
    const std::size_t stop = newline == text.npos ? end : newline;
    if (!line_told_ && (newline != text.npos || stop - line_ >= LineScanner::kLongest)) {
      found_.clear();
      scanner_.line(begin_ + static_cast<std::int64_t>(line_), text.substr(line_, std::min(stop - line_, LineScanner::kLongest)), found_);
      for (const Place& p : found_) add(p);
      line_told_ = true;
    }
    seen_ = stop;
    if (newline == text.npos) return;
    line_told_ = false;
    line_ = seen_ = newline + 1;
  }
}

void Splitter::add(const Place& place) {
  if (place.offset <= begin_) return;
  const auto grain = static_cast<std::int64_t>(max_) / kGrain;
  if (!places_.empty() && place.offset - places_.back().offset < grain) {
    if (place.level < places_.back().level) places_.back() = place;
    return;
  }
  places_.push_back(place);
}

// Cuts pieces off as long as more than one is there.
void Splitter::emit_ripe(std::size_t ahead) {
  while (buffer_.size() > max_ + ahead) {
    if (mode_ == SplitMode::kChapters) {
      found_.clear();
      ahead == 0 ? scanner_.flush(found_) : scanner_.flush_first(found_);
      for (const Place& p : found_) add(p);
    }
    Cut cut = choose();
    const auto n = static_cast<std::size_t>(cut.offset - begin_);
    sink_.text(std::string_view(buffer_).substr(0, n));
    if (sink_.cut) sink_.cut(cut);
    sink_.end_piece();
    begin_ = cut.offset;
    buffer_.erase(0, n);
    // A line that was cut goes on as one that begins here.
    line_ = line_ > n ? line_ - n : 0;
    seen_ = seen_ > n ? seen_ - n : 0;
    std::erase_if(places_, [&](const Place& p) { return p.offset <= begin_; });
  }
}

Cut Splitter::choose() const {
  const std::string_view room = std::string_view(buffer_).substr(0, max_ + kCharacter);
  Cut cut;
  if (mode_ == SplitMode::kFixed) {
    cut.offset = static_cast<std::int64_t>(character_cut(room, max_)), cut.level = kCharacterLevel;
  } else {
    const auto max = static_cast<std::int64_t>(max_);
    const auto best = [&](std::int64_t least, std::int64_t most, int level_from, int level_to) {
      const Place* chosen = nullptr;
      for (const Place& p : places_) {
        const std::int64_t at = p.offset - begin_;
        if (at < least || at > most || p.level < level_from || p.level > level_to) continue;
        if (!chosen || p.level <= chosen->level) chosen = &p;
      }
      return chosen;
    };
    const Place* place = best(std::max<std::int64_t>(1, max / 4), max, 1, kParagraphLevel - 1);
    if (!place) place = best(std::max<std::int64_t>(1, max / 32), max, 1, kParagraphLevel - 1);
    if (!place) place = best(std::max<std::int64_t>(1, max / 2), max, kParagraphLevel, kParagraphLevel);
    if (place) {
      cut = {.offset = place->offset - begin_, .level = place->level};
      const auto title = static_cast<std::size_t>(place->title_offset - begin_);
      cut.title = std::string_view(buffer_).substr(std::min(title, buffer_.size()));
    } else {
      cut = weaker_cut(room);
    }
  }
  const auto at = static_cast<std::size_t>(cut.offset);
  if (cut.title.empty()) cut.title = std::string_view(buffer_).substr(at);
  cut.title = cut.title.substr(0, std::min(cut.title.find('\n'), character_cut(cut.title, std::min(kLongestTitle, cut.title.size()))));
  cut.offset += begin_;
  return cut;
}

// In a stretch without headings and paragraphs: the last line, sentence, space or character of the room, past its half.
Cut Splitter::weaker_cut(std::string_view room) const {
  const auto cut = [](std::size_t at, int level) { return Cut{.offset = static_cast<std::int64_t>(at), .level = level}; };
  const std::size_t half = max_ / 2;
  if (const std::size_t newline = room.substr(0, max_).rfind('\n'); newline != room.npos && newline + 1 > half)
    return cut(newline + 1, kLineLevel);
  std::size_t space = 0;
  for (std::size_t at = max_; at > half; --at) {
    const char c = room[at - 1];
    if (c == ' ' || c == '\t') {
      if (!between_characters(room, at)) continue;
      if (ends_sentence(room.substr(0, at - 1))) return cut(at, kSentenceLevel);
      if (space == 0) space = at;
    } else if ((c & 0x80) && (static_cast<unsigned char>(room[at]) & 0xC0) != 0x80 && between_characters(room, at)) {
      const std::string_view before = room.substr(0, at);
      if (before.ends_with("。") || before.ends_with("！") || before.ends_with("？")) {
        const std::string_view after = room.substr(at);
        if (!after.starts_with("”") && !after.starts_with("’") && !after.starts_with("」") && !after.starts_with("』"))
          return cut(at, kSentenceLevel);
      } else if (space == 0 && (before.ends_with("，") || before.ends_with("\xE3\x80\x80"))) {
        space = at;
      }
    }
  }
  if (space) return cut(space, kSpaceLevel);
  return cut(character_cut(room, max_), kCharacterLevel);
}

}  // namespace flashgpt
