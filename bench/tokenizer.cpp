// Encodes a file with a tokenizer.json and writes the ids (int32), for comparison with another program: bench/tokenizer_vs_hf.py.
// tokenizer TOKENIZER TEXT IDS_OUT whole|lines THREADS
//   whole: the file is one document. lines: each line, without its newline, is one, special tokens are parsed, and -1 follows its ids.
// Prints the seconds of the encoding alone and the bytes of text.
#include "data/tokenizer.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/threads.h"
#include "data/tokenizer/encode_stream.h"
#include "flashgpt/error.h"
#include "io/file.h"

using namespace flashgpt;

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: tokenizer TOKENIZER TEXT IDS_OUT whole|lines THREADS\n");
    return 2;
  }
  try {
    const Tokenizer tokenizer = Tokenizer::load(argv[1]);
    const std::string text = read_file(argv[2]);
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 2);
    ThreadPool pool(std::atoi(argv[5]), false);
    const auto start = std::chrono::steady_clock::now();
    if (std::string_view(argv[4]) == "lines") {
      Encoder encoder = tokenizer.encoder();
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        encoder.encode(std::string_view(text).substr(at, end - at), ids, Specials::kParse);
        ids.push_back(-1);
        at = end + 1;
      }
    } else {
      EncodeStream stream(tokenizer, pool, [&](std::span<const std::int32_t> piece, std::int64_t, bool, int) {
        ids.insert(ids.end(), piece.begin(), piece.end());
      });
      stream.append(text, 0);
      stream.end_document(0);
      stream.finish();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    write_atomic(argv[3], {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)});
    std::printf("%.6f %zu\n", seconds.count(), text.size());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tokenizer: %s\n", e.what());
    return 1;
  }
}
