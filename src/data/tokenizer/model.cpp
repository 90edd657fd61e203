#include "data/tokenizer/model.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "data/tokenizer/byte_names.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/unicode.h"
#include "flashgpt/error.h"

namespace flashgpt {
namespace {

std::string byte_piece(int byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte) & 0xFF);
  return text;
}

// Added tokens as they are looked for, in the raw text or in the normalized one.
AddedTokenFinder finder(const TokenizerModel& model, bool normalized) {
  std::vector<AddedToken> tokens;
  std::string buffer;
  for (AddedToken t : model.added) {
    if (t.normalized != normalized) continue;
    if (normalized) t.content = std::string(normalize(model, t.content, buffer));
    tokens.push_back(std::move(t));
  }
  return AddedTokenFinder(std::move(tokens));
}

std::string text_of_characters(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kMetaSpace);
    text += space ? ' ' : piece[0];
    piece.remove_prefix(space ? kMetaSpace.size() : 1);
  }
  return text;
}

void append_meta(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == ' ')
      out += kMetaSpace;
    else
      out += c;
  }
}

}  // namespace

std::int64_t TokenizerModel::vocab_size() const {
  auto size = static_cast<std::int64_t>(pieces.size());
  for (const AddedToken& t : added) size = std::max<std::int64_t>(size, std::int64_t{t.id} + 1);
  return size;
}

TokenizerTables::TokenizerTables(TokenizerModel m, const std::string& what)
    : model(std::move(m)),
      merges(model.merges),
      word_end(flashgpt::word_end(model.split)),
      raw_tokens(finder(model, false)),
      normalized_tokens(finder(model, true)),
      text(static_cast<std::size_t>(model.vocab_size())) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < model.pieces.size(); ++id)
    if (!model.pieces[id].empty()) ids.emplace(model.pieces[id], static_cast<std::int32_t>(id));

  for (int b = 0; b < 256; ++b) {
    const std::string name = model.byte_level ? name_of_byte(b) : byte_piece(b);
    const auto found = ids.find(name);
    require(found != ids.end(), what, ": the vocabulary has no ", name, ", the piece of byte ", b,
            "; expected one for every byte, so that any text can be encoded");
    byte_ids[static_cast<std::size_t>(b)] = found->second;
  }
  if (model.byte_level) {
    for (const auto& [piece, id] : ids) {
      std::optional<std::string> bytes = bytes_of_names(piece);
      if (bytes && model.ignore_merges) whole.emplace(*bytes, id);
      text[static_cast<std::size_t>(id)] = bytes ? std::move(*bytes) : std::string(piece);
    }
  } else {
    std::vector<bool> is_byte(model.pieces.size());
    for (const auto& [piece, id] : ids) {
      text[static_cast<std::size_t>(id)] = text_of_characters(piece);
      const Character c = decode_utf8(piece.data(), piece.data() + piece.size());
      if (c.code == kNoCharacter || c.bytes != piece.size()) continue;
      if (char_ids.size() <= c.code) char_ids.resize(c.code + 1, -1);
      char_ids[c.code] = id;
    }
    for (int b = 0; b < 256; ++b) {
      const auto id = static_cast<std::size_t>(byte_ids[static_cast<std::size_t>(b)]);
      text[id].assign(1, static_cast<char>(b));
      is_byte[id] = true;
    }
    for (const Merge& merge : model.merges) {
      require(!is_byte[static_cast<std::size_t>(merge.left)] && !is_byte[static_cast<std::size_t>(merge.right)], what, ": a merge makes ",
              model.pieces[static_cast<std::size_t>(merge.id)], " of byte pieces; expected merges of characters");
      pairs.add(model.pieces[static_cast<std::size_t>(merge.id)]);
    }
  }
  for (const AddedToken& t : model.added) text[static_cast<std::size_t>(t.id)] = t.special ? "" : t.content;
}

std::string_view normalize(const TokenizerModel& model, std::string_view text, std::string& buffer) {
  if (text.empty()) return text;
  if (model.nfc) return nfc(text, buffer);
  if (model.meta_spaces != MetaSpaces::kNormalizer) return text;
  buffer.clear();
  if (model.prefix == Prefix::kEvery) buffer += kMetaSpace;
  append_meta(buffer, text);
  return buffer;
}

std::string_view pre_tokenize(const TokenizerModel& model, std::string_view text, bool first, std::string& buffer) {
  if (text.empty() || model.meta_spaces != MetaSpaces::kPreTokenizer) return text;
  buffer.clear();
  const bool has = text[0] == ' ' || text.starts_with(kMetaSpace);
  if (!has && (model.prefix == Prefix::kEveryMissing || (model.prefix == Prefix::kFirstMissing && first))) buffer += kMetaSpace;
  append_meta(buffer, text);
  return buffer;
}

}  // namespace flashgpt
