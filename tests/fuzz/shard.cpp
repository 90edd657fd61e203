// A shard of tokens. Checksums would stop the fuzzer at the door, so each input is tried as it is, and once more with checksums that fit.
#include "data/shard.h"

#include <cstring>

#include "fuzz/targets.h"

namespace flashgpt::fuzz {
namespace {

constexpr std::size_t kTail = 128, kTailSum = 112, kPayloadSum = 48, kTailMagic = 120;  // places in the tail; its format is in shard.h

void read(const std::filesystem::path& path) {
  expect_answer([&] {
    const Shard shard = Shard::open(path.string());
    const TokenSpan tokens = shard.tokens();
    promise(tokens.count == shard.info().tokens, "the span has the tokens that the tail says");
    unsigned sum = 0;
    for (std::int64_t i = 0; i < tokens.count * tokens.width; ++i) sum += static_cast<const unsigned char*>(tokens.data)[i];
    for (const std::uint64_t start : shard.document_starts()) sum += static_cast<unsigned>(start);
    volatile unsigned used = sum;
    (void)used;
    const std::int64_t vocab = shard.info().tokenizer.vocab_size;
    if (vocab > (1 << 16)) return;
    const TokenStream stream({tokens}, std::vector<std::int32_t>(static_cast<std::size_t>(vocab), 1), shard.info().tokenizer.end_of_text);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(stream.size()));
    stream.copy(stream.size() - 1, stream.size(), ids.data());
  });
}

}  // namespace

void shard(std::string_view bytes) {
  static const Folder folder;
  read(folder.write("a.shard", bytes));
  if (bytes.size() < 16 + kTail) return;
  std::string mended(bytes);
  char* tail = mended.data() + mended.size() - kTail;
  std::memcpy(mended.data(), "FGPTSHRD", 8);
  std::memcpy(tail + kTailMagic, "FGPTTAIL", 8);
  const std::uint64_t payload = checksum64(std::string_view(mended.data(), mended.size() - kTail));
  std::memcpy(tail + kPayloadSum, &payload, 8);
  const std::uint64_t sum = checksum64(std::string_view(tail, kTailSum));
  std::memcpy(tail + kTailSum, &sum, 8);
  read(folder.write("a.shard", mended));
}

}  // namespace flashgpt::fuzz
