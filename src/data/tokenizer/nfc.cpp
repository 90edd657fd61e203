#include "data/tokenizer/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_tables.h"

namespace flashgpt {
namespace {

// Hangul syllables are made of a lead, a vowel and perhaps a trailing consonant by arithmetic (Unicode, section 3.12).
constexpr std::uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr std::uint32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28, kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

enum Property : std::uint8_t {
  kMark = 1,        // its combining class is not 0
  kDecomposes = 2,  // into something that does not compose to it again
  kComposesOn = 4,  // may join with what stands before it
};

class Tables {
 public:
  Tables() : properties_(kCodePoints + 1), classes_(kCodePoints + 1) {
    for (std::size_t i = 0; i < kCombiningClassesCount; ++i)
      for (std::uint32_t c = kCombiningClasses[i].first; c <= kCombiningClasses[i].last; ++c) {
        classes_[c] = kCombiningClasses[i].value;
        properties_[c] |= kMark;
      }
    for (std::size_t i = 0; i < kDecompositionsCount; ++i) {
      const Decomposition& d = kDecompositions[i];
      parts_[d.code] = {d.first, d.second};
      if (d.composes) {
        composed_[key(d.first, d.second)] = d.code;
        properties_[d.second] |= kComposesOn;
      } else {
        properties_[d.code] |= kDecomposes;
      }
    }
    for (std::uint32_t v = 0; v < kVowelCount; ++v) properties_[kVowels + v] |= kComposesOn;
    for (std::uint32_t t = 1; t < kTrailCount; ++t) properties_[kTrails + t] |= kComposesOn;
  }

  std::uint8_t properties(std::uint32_t c) const { return properties_[c]; }
  std::uint8_t combining_class(std::uint32_t c) const { return classes_[c]; }

  void decompose(std::uint32_t c, std::vector<std::uint32_t>& out) const {
    if (c - kSyllables < kSyllableCount) {
      const std::uint32_t s = c - kSyllables;
      out.push_back(kLeads + s / (kVowelCount * kTrailCount));
      out.push_back(kVowels + s / kTrailCount % kVowelCount);
      if (s % kTrailCount > 0) out.push_back(kTrails + s % kTrailCount);
      return;
    }
    const auto found = parts_.find(c);
    if (found == parts_.end()) return out.push_back(c);
    decompose(found->second.first, out);
    if (found->second.second) decompose(found->second.second, out);
  }

  // 0: the two do not compose.
  std::uint32_t compose(std::uint32_t a, std::uint32_t b) const {
    if (a - kLeads < kLeadCount && b - kVowels < kVowelCount)
      return kSyllables + ((a - kLeads) * kVowelCount + (b - kVowels)) * kTrailCount;
    if (a - kSyllables < kSyllableCount && (a - kSyllables) % kTrailCount == 0 && b - kTrails < kTrailCount && b != kTrails)
      return a + (b - kTrails);
    const auto found = composed_.find(key(a, b));
    return found == composed_.end() ? 0 : found->second;
  }

 private:
  static std::uint64_t key(std::uint32_t a, std::uint32_t b) { return static_cast<std::uint64_t>(a) << 32 | b; }

  std::vector<std::uint8_t> properties_, classes_;
  std::unordered_map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> parts_;
  std::unordered_map<std::uint64_t, std::uint32_t> composed_;
};

const Tables& tables() {
  static const Tables all;
  return all;
}

// A starter with all that may act on it: decomposed, put in order, composed, appended.
void append_cluster(const Tables& t, std::vector<std::uint32_t>& cluster, std::string& out) {
  std::size_t from = 0;  // canonical order: stable by class between starters
  for (std::size_t i = 0; i <= cluster.size(); ++i)
    if (i == cluster.size() || t.combining_class(cluster[i]) == 0) {
      std::stable_sort(cluster.begin() + static_cast<std::ptrdiff_t>(from), cluster.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](std::uint32_t a, std::uint32_t b) { return t.combining_class(a) < t.combining_class(b); });
      from = i + 1;
    }
  // A character joins the last starter unless one between them has its class or is a starter.
  std::size_t starter = cluster.size(), kept = 0;
  int last_class = -1;
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    const std::uint32_t c = cluster[i];
    const int here = t.combining_class(c);
    if (starter < kept && last_class < here) {
      if (const std::uint32_t joined = t.compose(cluster[starter], c)) {
        cluster[starter] = joined;
        continue;
      }
    }
    if (here == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = here;
    }
    cluster[kept++] = c;
  }
  for (std::size_t i = 0; i < kept; ++i) append_utf8(out, cluster[i]);
  cluster.clear();
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& buffer) {
  constexpr unsigned char kFirstLead = 0xCC;  // all below U+0300 is normal
  const char *const begin = text.data(), *const end = begin + text.size();
  const char* at = begin;
  while (at < end && static_cast<unsigned char>(*at) < kFirstLead) ++at;
  if (at == end) return text;

  const Tables& t = tables();
  const char* starter = begin;  // where the character before `at` begins, which a mark may change
  if (at > begin) starter = at - decode_last(begin, at).bytes;
  while (at < end) {
    const Character c = decode_utf8(at, end);
    if (t.properties(c.code) != 0) break;
    starter = at;
    at += c.bytes;
  }
  if (at == end) return text;

  buffer.assign(begin, starter);
  std::vector<std::uint32_t> cluster, parts;
  for (at = starter; at < end;) {
    const Character c = decode_utf8(at, end);
    if (c.code == kNoCharacter) {
      append_cluster(t, cluster, buffer);
      buffer += *at++;
      continue;
    }
    parts.clear();
    t.decompose(c.code, parts);
    if ((t.properties(parts[0]) & (kMark | kComposesOn)) == 0) append_cluster(t, cluster, buffer);
    cluster.insert(cluster.end(), parts.begin(), parts.end());
    at += c.bytes;
  }
  append_cluster(t, cluster, buffer);
  return buffer;
}

}  // namespace flashgpt
