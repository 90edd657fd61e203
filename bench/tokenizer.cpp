// Encodes a file with a tokenizer.json and writes the ids (int32), for comparison with another program: bench/tokenizer_vs_hf.py.
// tokenizer TOKENIZER TEXT IDS_OUT documents|lines THREADS
//   documents: they end with byte 0xFF, and are encoded as `data prepare` does. lines: each, without its newline, is one text, and special
//   tokens are parsed. -1 follows the ids of each.
// tokenizer learn TEXT TOKENIZER_OUT VOCAB_SIZE gpt2|llama3|qwen2|qwen3.5 THREADS
//   learns one from the file as one document.
// Prints the seconds of the work alone and the bytes of text.
#include "data/tokenizer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/threads.h"
#include "data/tokenizer/bpe_training.h"
#include "data/tokenizer/encode_stream.h"
#include "data/tokenizer/tokenizer_json.h"
#include "flashgpt/error.h"
#include "io/file.h"

using namespace flashgpt;

namespace {

void learn(std::string_view text, const char* out, std::int64_t vocab_size, std::string_view words, ThreadPool& pool) {
  for (const SplitRule rule : kRegexRules) {
    if (name_of(rule) != words) continue;
    WordCounter counter(rule, pool);
    counter.append(text);
    const LearnedBpe bpe = learn_bpe(counter.finish(), vocab_size - 1);
    return write_atomic(out, byte_level_json(rule, bpe.pieces, bpe.merges, "<|endoftext|>"));
  }
  fail("words = ", words, ", expected gpt2, llama3, qwen2 or qwen3.5");
}

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text, bool lines, ThreadPool& pool) {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 2);
  if (lines) {
    Encoder encoder = tokenizer.encoder();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      encoder.encode(text.substr(at, end - at), ids, Specials::kParse);
      ids.push_back(-1);
      at = end + 1;
    }
    return ids;
  }
  EncodeStream stream(tokenizer, pool, [&](std::span<const std::int32_t> piece, std::int64_t, bool ends, int) {
    ids.insert(ids.end(), piece.begin(), piece.end());
    if (ends) ids.push_back(-1);
  });
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\xFF', at), text.size());
    stream.append(text.substr(at, end - at), 0);
    stream.end_document(0);
    at = end + 1;
  }
  stream.finish();
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  const bool learns = argc == 7 && std::string_view(argv[1]) == "learn";
  if (argc != 6 && !learns) {
    std::fprintf(stderr,
                 "usage: tokenizer TOKENIZER TEXT IDS_OUT documents|lines THREADS\n"
                 "       tokenizer learn TEXT TOKENIZER_OUT VOCAB_SIZE gpt2|llama3|qwen2|qwen3.5 THREADS\n");
    return 2;
  }
  try {
    using Clock = std::chrono::steady_clock;
    ThreadPool pool(std::atoi(argv[argc - 1]), false);
    const std::string text = read_file(argv[2]);
    std::chrono::duration<double> seconds{};
    if (learns) {
      const Clock::time_point start = Clock::now();
      learn(text, argv[3], std::atoll(argv[4]), argv[5], pool);
      seconds = Clock::now() - start;
    } else {
      const Tokenizer tokenizer = Tokenizer::load(argv[1]);
      const Clock::time_point start = Clock::now();
      const std::vector<std::int32_t> ids = encode(tokenizer, text, std::string_view(argv[4]) == "lines", pool);
      seconds = Clock::now() - start;
      write_atomic(argv[3], {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)});
    }
    std::printf("%.6f %zu\n", seconds.count(), text.size());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tokenizer: %s\n", e.what());
    return 1;
  }
}
