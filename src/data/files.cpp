#include "data/files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "flashgpt/error.h"

namespace flashgpt {

namespace fs = std::filesystem;

namespace {

using FileId = std::pair<dev_t, ino_t>;

bool is_pattern(const std::string& s) { return s.find_first_of("*?[") != std::string::npos; }

bool passes(const FileFilter& filter, const std::string& name) {
  const auto ends = [&](const std::string& suffix) { return name.ends_with(suffix); };
  const auto holds = [&](const std::string& part) { return ("/" + name).find(part) != std::string::npos; };
  if (std::any_of(filter.excludes.begin(), filter.excludes.end(), holds)) return false;
  return filter.suffixes.empty() || std::any_of(filter.suffixes.begin(), filter.suffixes.end(), ends);
}

struct Search {
  const FileFilter& filter;
  FileId without{};
  bool has_without = false;
  std::set<FileId> seen;
  FileList out;

  void skip(const std::string& reason, const std::string& path) { add_skipped(out.skipped, reason, path); }

  void take(const std::string& path, const std::string& name, const struct stat& st, bool named) {
    if (seen.insert({st.st_dev, st.st_ino}).second)
      out.files.push_back({.path = path, .name = name, .size = st.st_size, .named = named});
    else
      skip("named twice", path);
  }

  // Entries in the order of their names, so that the result does not depend on the file system's.
  // Folders of `flashgpt data prepare`, whole or not, hold no text but their JSON: named, they are an error, below others passed over.
  void folder(const std::string& path, const std::string& below, bool named) {
    std::error_code ec;
    std::vector<std::string> names;
    fs::directory_iterator it(path, ec);
    for (; !ec && it != fs::directory_iterator(); it.increment(ec)) names.push_back(it->path().filename().string());
    if (ec) return skip("folder not readable", path);
    std::sort(names.begin(), names.end());
    if (std::any_of(names.begin(), names.end(), [](const std::string& n) { return n.ends_with(".shard"); })) {
      require(!named, path, " holds shards of `flashgpt data prepare` and no text, ",
              fs::exists(fs::path(path) / "meta.json", ec) ? "and is prepared already"
                                                           : "but no meta.json, so it is not whole: prepare it again");
      return skip("prepared data", path);
    }
    for (const std::string& n : names) {
      const std::string full = (fs::path(path) / n).string();
      if (n[0] == '.') {
        skip("hidden", full);
        continue;
      }
      struct stat st;
      if (lstat(full.c_str(), &st) != 0) {
        skip("not readable", full);
      } else if (S_ISLNK(st.st_mode)) {
        skip("link", full);
      } else if (S_ISDIR(st.st_mode)) {
        if (has_without && without == FileId{st.st_dev, st.st_ino})
          skip("the output folder", full);
        else
          folder(full, below + n + "/", false);
      } else if (!S_ISREG(st.st_mode)) {
        skip("not a regular file", full);
      } else if (!passes(filter, below + n)) {
        skip("other kinds of file", full);
      } else {
        take(full, below + n, st, false);
      }
    }
  }

  void path(const std::string& p, bool named) {
    struct stat st;
    if (stat(p.c_str(), &st) != 0) {
      require(!named, "cannot read ", p, ": ", std::strerror(errno), ", expected a text file, a folder or a pattern");
      return skip("not readable", p);
    }
    if (S_ISDIR(st.st_mode)) {
      if (has_without && without == FileId{st.st_dev, st.st_ino}) return skip("the output folder", p);
      return folder(p, "", named);
    }
    if (S_ISREG(st.st_mode)) return take(p, fs::path(p).filename().string(), st, named);
    require(!named, p, " is neither a file nor a folder, expected text in regular files");
    skip("not a regular file", p);
  }

  void pattern(const std::string& p) {
    glob_t found{};
    const int rc = glob(p.c_str(), GLOB_TILDE, nullptr, &found);  // sorted
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (rc == 0 ? found.gl_pathc : 0));
    globfree(&found);
    require(!paths.empty(), "no file matches ", p,
            ", expected a pattern such as 'texts/*.txt'; a folder is searched in depth without any pattern");
    for (const std::string& s : paths) path(s, false);
  }
};

}  // namespace

void add_skipped(std::vector<Skipped>& all, const std::string& reason, const std::string& path) {
  auto it = std::find_if(all.begin(), all.end(), [&](const Skipped& s) { return s.reason == reason; });
  if (it == all.end()) it = all.insert(all.end(), {.reason = reason, .files = 0, .example = path});
  ++it->files;
}

FileList find_files(const std::vector<std::string>& inputs, const FileFilter& filter, const std::string& without) {
  require(!inputs.empty(), "no text given, expected files, folders or patterns");
  Search search{.filter = filter};
  struct stat st;
  if (!without.empty() && stat(without.c_str(), &st) == 0) search.without = {st.st_dev, st.st_ino}, search.has_without = true;
  for (const std::string& input : inputs) {
    require(!input.empty(), "an empty path among the inputs, expected files, folders or patterns");
    if (is_pattern(input) && !fs::exists(fs::symlink_status(input)))
      search.pattern(input);
    else
      search.path(input, true);
  }
  return std::move(search.out);
}

}  // namespace flashgpt
