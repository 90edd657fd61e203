// Text files to shards: `flashgpt data prepare`. Each file is a document, encoded as a stream on all threads, so memory grows with the
// number of files alone.
//
// Documents are held out for validation by a hash of their beginning and size, so equal files fall on one side. When documents are too few
// for that to come near val_fraction, the end of every document is held out instead, cut after a newline where there is one.
//
// With vocab_size, a tokenizer is learned first, from the text of training alone; of much text, from blocks spread over all of it.
//
// OUT/ gets train-00000.shard ..., val-00000.shard ..., tokenizer.json, tokenizer_config.json, and, last, meta.json, which names the shards
// (data/dataset.h).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files.h"

namespace flashgpt {

struct PrepareOptions {
  std::vector<std::string> inputs;  // files, folders, patterns
  FileFilter filter;
  std::string out;                        // folder; shards of an earlier call there are replaced
  double val_fraction = 0.05;             // of the text held out; 0: none
  std::int64_t max_bytes = 0;             // take a sample of whole documents of about so much text; 0: all
  std::int64_t shard_tokens = 100000000;  // a shard ends with the document that reaches this
  bool binary = false;                    // take files with NUL bytes too
  Tokenizer tokenizer = Tokenizer::bytes();
  std::int64_t vocab_size = 0;           // ids of a byte-level BPE to learn, end-of-text included (at least 257); 0: take `tokenizer`
  SplitRule words = SplitRule::kLlama3;  // of the tokenizer that is learned
  std::int64_t learn_bytes = std::int64_t{128} << 20;                   // of text that it is learned from, about
  int threads = 0;                                                      // 0: all that this process may use
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // bytes of text; may be empty
};

struct PrepareReport {
  DatasetInfo info;            // what meta.json says
  bool ends_held_out = false;  // the end of each document, as documents were few
  std::vector<Skipped> skipped;
  std::int64_t learned_bytes = 0, learned_of = 0;  // text that the tokenizer was learned from, and all that it might have been
  std::int64_t found_files = 0, found_bytes = 0;   // that were not skipped, before max_bytes
};

// An Error says which input cannot be read, or that there is too little text.
PrepareReport prepare(const PrepareOptions& options);

// A few lines for people.
std::string summary(const PrepareReport& report);

}  // namespace flashgpt
