#include "cli/eval_text.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "data/source.h"
#include "flashgpt/error.h"
#include "io/json.h"

namespace flashgpt::cli {

namespace {

// The bytes of a file, of gzip and zstd what is packed in them.
std::string unpacked(const std::string& path) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  ByteSource source(path);
  require(static_cast<bool>(source), path, ": cannot be read: ", std::strerror(errno));
  std::string text;
  for (std::size_t got = kPiece; got == kPiece;) {
    text.resize(text.size() + kPiece);
    got = source.read(text.data() + text.size() - kPiece, kPiece);
    text.resize(text.size() - kPiece + got);
  }
  require(source.fault().empty(), path, ": is ", source.fault());
  return text;
}

}  // namespace

EvalText read_eval_text(const std::vector<std::string>& inputs, const std::string& field, const Tokenizer& tokenizer) {
  EvalText out;
  auto add = [&](std::string_view text) {
    if (text.empty()) return;
    tokenizer.encode(text, out.ids);
    out.ids.push_back(tokenizer.end_of_text());
  };
  for (const InputFile& file : find_files(inputs, {}).files) {
    const std::string text = unpacked(file.path);
    const std::string_view name = without_compression(file.path);
    if (!name.ends_with(".jsonl") && !name.ends_with(".ndjson")) {
      add(text);
      continue;
    }
    std::size_t line = 1;
    for (std::size_t at = 0; at < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view one = std::string_view(text).substr(at, end - at);
      at = end + 1;
      if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = cat(file.path, ":", line);
      const Json object = parse_json(one, where);
      require(object.is_object() && object.contains(field) && object[field].is_string(), where, ": expected an object with text in \"",
              field, "\"; --text-field names another key");
      add(object[field].get_ref<const std::string&>());
    }
  }
  require(!out.ids.empty(), "there is no text in ", inputs[0], inputs.size() > 1 ? " and the others" : "");
  out.stream = TokenStream({{.data = out.ids.data(), .count = static_cast<std::int64_t>(out.ids.size()), .width = 4}},
                           tokenizer.token_bytes(), tokenizer.end_of_text());
  return out;
}

}  // namespace flashgpt::cli
