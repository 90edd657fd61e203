#include "data/survey.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "flashgpt/error.h"
#include "io/file.h"

namespace flashgpt {

namespace {

// Hashes by open addressing: 8 bytes each at a load of at most 2/3. Two different documents that fall together by chance (1 in 10^5 for
// 20 million documents) cost one of them.
class HashSet {
 public:
  bool insert(std::uint64_t hash) {  // false: it was there
    if ((used_ + 1) * 3 > slots_.size() * 2) grow();
    const std::size_t at = find(key(hash));
    if (slots_[at] != kFree) return false;
    slots_[at] = key(hash);
    ++used_;
    return true;
  }
  void erase(std::uint64_t hash) {
    const std::size_t at = find(key(hash));
    if (slots_[at] != kFree) slots_[at] = kErased;
  }

 private:
  static constexpr std::uint64_t kFree = 0, kErased = 1;
  static std::uint64_t key(std::uint64_t hash) { return hash <= kErased ? hash + 2 : hash; }
  std::size_t find(std::uint64_t k) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(k * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (slots_[at] != kFree && slots_[at] != k) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(1024, slots_.size() * 2));
    old.swap(slots_);
    used_ = 0;
    for (const std::uint64_t k : old)
      if (k > kErased) slots_[find(k)] = k, ++used_;
  }

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(1024);
  std::size_t used_ = 0;
};

class Surveyor {
 public:
  Surveyor(FileList& list, const SurveyOptions& options)
      : list_(list), options_(options), room_(options.max_bytes > 0 ? options.max_bytes : INT64_MAX) {}

  bool room() const { return room_ > 0; }

  std::vector<SurveyedDocument> look(const InputFile& f) {
    std::vector<Skipped> skipped;
    DocumentReader reader(f.path, options_.source, &skipped);
    if (!reader) {
      require(!f.named, "cannot read ", f.path, ": ", std::strerror(errno), ", expected a readable text file");
      add_skipped(list_.skipped, "not readable", f.path);
      return {};
    }
    std::vector<SurveyedDocument> documents;
    std::vector<std::uint64_t> new_hashes;
    const std::int64_t room_before = room_;
    bool all = true;  // of the file was read
    while (all && reader.next()) {
      Checksum64 sum;
      SurveyedDocument d;
      for (std::string_view part = reader.text(); !part.empty() && all; part = reader.text()) {
        part = part.substr(0, static_cast<std::size_t>(std::min<std::int64_t>(room_ - d.bytes, static_cast<std::int64_t>(part.size()))));
        sum.update(std::as_bytes(std::span(part)));
        d.bytes += static_cast<std::int64_t>(part.size());
        all = d.bytes < room_;
      }
      d.hash = document_hash(sum.value(), d.bytes);
      if (!reader.fault().empty()) break;
      if (!options_.keep_duplicates && !seen_.insert(d.hash)) {
        add_skipped(skipped, "duplicates", f.path);
        d.bytes = 0;
      } else {
        new_hashes.push_back(d.hash);
      }
      room_ -= d.bytes;
      all = room_ > 0;
      documents.push_back(d);
    }
    if (!reader.fault().empty()) {
      for (const std::uint64_t h : new_hashes) seen_.erase(h);
      room_ = room_before;
      refuse(f, reader.fault());
      return {};
    }
    for (const Skipped& s : skipped) add(s);
    if (std::all_of(documents.begin(), documents.end(), [](const SurveyedDocument& d) { return d.bytes == 0; })) documents.clear();
    return documents;
  }

 private:
  void add(const Skipped& s) {
    add_skipped(list_.skipped, s.reason, s.example);
    std::find_if(list_.skipped.begin(), list_.skipped.end(), [&](const Skipped& t) { return t.reason == s.reason; })->files += s.files - 1;
  }
  void refuse(const InputFile& f, const std::string& fault) {
    if (f.named && fault == "binary")
      fail(f.path, " has NUL bytes, so it is binary or UTF-16: convert it (iconv -f UTF-16 -t UTF-8), or take it as it is with --binary");
    require(!f.named || fault == "empty", f.path, " is of no use (", fault, "), expected whole text: mend it or leave it out");
    add_skipped(list_.skipped, fault, f.path);
  }

  FileList& list_;
  const SurveyOptions& options_;
  std::int64_t room_;
  HashSet seen_;
};

}  // namespace

std::uint64_t document_hash(std::uint64_t checksum, std::int64_t bytes) {
  return checksum ^ static_cast<std::uint64_t>(bytes) * 0x9E3779B97F4A7C15u;
}

Survey survey(FileList& list, const SurveyOptions& options) {
  std::vector<std::size_t> order(list.files.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A sample takes documents from everywhere, not the first folders.
  const auto by_name = [&](std::size_t a, std::size_t b) { return checksum64(list.files[a].name) < checksum64(list.files[b].name); };
  if (options.max_bytes > 0) std::stable_sort(order.begin(), order.end(), by_name);

  Surveyor surveyor(list, options);
  std::vector<std::vector<SurveyedDocument>> documents(list.files.size());
  for (const std::size_t i : order)
    if (surveyor.room()) documents[i] = surveyor.look(list.files[i]);

  Survey out;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (documents[i].empty()) continue;
    for (const SurveyedDocument& d : documents[i]) out.documents += d.bytes > 0, out.bytes += d.bytes;
    out.files.push_back({.file = list.files[i], .documents = std::move(documents[i])});
  }
  return out;
}

}  // namespace flashgpt
