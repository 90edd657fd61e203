// A token stream made of random documents, for tests of loaders.
#pragma once
#include <random>
#include <vector>

#include "data/stream.h"

namespace flashgpt::testing {

inline constexpr std::int32_t kEnd = 256;

struct RandomStream {
  std::vector<std::vector<std::uint16_t>> pieces;
  std::vector<std::int32_t> all;  // the pieces, one after the other
  TokenStream stream;

  // Documents of 1 .. longest tokens of text, cut into pieces at ends of documents.
  RandomStream(std::uint32_t seed, int documents, int longest, int piece_count = 1) {
    std::mt19937 random(seed);
    pieces.resize(static_cast<std::size_t>(piece_count));
    for (int d = 0; d < documents; ++d) {
      std::vector<std::uint16_t>& piece = pieces[static_cast<std::size_t>(d * piece_count / documents)];
      const int n = 1 + static_cast<int>(random() % static_cast<unsigned>(longest));
      for (int i = 0; i < n; ++i) piece.push_back(static_cast<std::uint16_t>(random() % 256));
      piece.push_back(kEnd);
    }
    std::vector<TokenSpan> spans;
    for (const auto& piece : pieces) {
      spans.push_back({.data = piece.data(), .count = static_cast<std::int64_t>(piece.size()), .width = 2});
      all.insert(all.end(), piece.begin(), piece.end());
    }
    std::vector<std::int32_t> token_bytes(257, 1);
    token_bytes[kEnd] = 0;
    stream = TokenStream(std::move(spans), std::move(token_bytes), kEnd);
  }
};

}  // namespace flashgpt::testing
