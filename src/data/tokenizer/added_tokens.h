// Added tokens: texts that are one id wherever they stand, found before anything else is done (in the raw text, or after normalization).
// Of two that begin at one place the longer counts.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flashgpt {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool lstrip = false, rstrip = false;  // takes the white space on this side too
  bool normalized = false;              // is looked for after normalization, and normalized itself
  bool special = false;                 // stands for no text: <|endoftext|>
};

class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);  // content as it is looked for, not empty

  struct Match {
    std::size_t begin, end;  // end == begin: none
    const AddedToken* token;
  };
  // The first match at or after `from`, with the white space that it takes, on its left not before `floor` <= from.
  Match find(std::string_view text, std::size_t from, std::size_t floor) const;
  // Whether some token touches the place: ends at it or later and begins at it or before.
  bool touches(std::string_view text, std::size_t place) const;
  std::size_t longest() const { return longest_; }  // bytes
  bool empty() const { return tokens_.empty(); }

 private:
  const AddedToken* at(std::string_view text, std::size_t place) const;

  std::vector<AddedToken> tokens_;          // by first byte, then the longest first
  std::array<std::uint32_t, 257> first_{};  // tokens that begin with byte b: [first_[b], first_[b + 1])
  std::size_t longest_ = 0;
};

}  // namespace flashgpt
