// Text to shards: `flashgpt data prepare`. Files may be compressed (data/source.h); each is a document, or, JSON Lines, each line of it
// (data/source_documents.h). Equal documents are taken once. Long ones may be cut into pieces (data/split.h), which are the documents of
// the data set. All is read twice, first to survey it, then to encode it as a stream on all threads; memory grows by some 50 bytes a
// document.
//
// Documents are held out for validation by a hash (data/hold_out.h). When documents are too few for that to come near val_fraction, the end
// of every document is held out instead.
//
// With vocab_size, a tokenizer is learned first, from the text of training alone; of much text, from blocks spread over all of it.
//
// OUT/ gets train-00000.shard ..., val-00000.shard ..., tokenizer.json, tokenizer_config.json, and, last, meta.json, which names the shards
// (data/dataset.h). A call that was stopped leaves shards that are whole and prepare.json; the same call again goes on after them, and any
// other begins anew. Files that change between the two readings are an error.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files.h"
#include "data/lengths.h"
#include "data/source_documents.h"
#include "data/split.h"

namespace flashgpt {

struct PrepareOptions {
  std::vector<std::string> inputs;  // files, folders, patterns
  FileFilter filter;
  std::string out;                        // folder; shards of an earlier call there are replaced
  double val_fraction = 0.05;             // of the text held out; 0: none
  std::int64_t max_bytes = 0;             // take a sample of whole documents of about so much text; 0: all
  std::int64_t shard_tokens = 100000000;  // a shard ends with the document that reaches this
  bool binary = false;                    // take files with NUL bytes too
  SourceFormat format = SourceFormat::kAuto;
  std::string text_key = "text";  // of a line of JSON
  bool deduplicate = true;        // equal documents are taken once
  SplitMode split = SplitMode::kNone;
  std::int64_t max_document = std::int64_t{128} << 10;  // bytes of text of a piece, at most; for splitting
  bool dry_run = false;                                 // find, survey and cut; write nothing
  Tokenizer tokenizer = Tokenizer::bytes();
  std::int64_t vocab_size = 0;           // ids of a byte-level BPE to learn, end-of-text included (at least 257); 0: take `tokenizer`
  SplitRule words = SplitRule::kLlama3;  // of the tokenizer that is learned
  std::int64_t learn_bytes = std::int64_t{128} << 20;                       // of text that it is learned from, about
  int threads = 0;                                                          // 0: all that this process may use
  std::function<void(std::int64_t done, std::int64_t total)> progress;      // bytes of text; may be empty
  std::function<void(const std::string& document, const Cut& cut)> on_cut;  // where documents are cut; may be empty
};

struct PrepareReport {
  DatasetInfo info;            // what meta.json says
  bool ends_held_out = false;  // the end of each document, as documents were few
  bool dry_run = false;
  std::vector<Skipped> skipped;
  Lengths lengths;                                 // of documents in tokens; of a dry run in bytes
  std::int64_t source_documents = 0;               // before they were cut
  std::int64_t resumed_shards = 0;                 // that an earlier call had finished
  std::int64_t learned_bytes = 0, learned_of = 0;  // text that the tokenizer was learned from, and all that it might have been
  std::int64_t found_files = 0, found_bytes = 0;   // that were not skipped, before max_bytes
};

// An Error says which input cannot be read, or that there is too little text.
PrepareReport prepare(const PrepareOptions& options);

// A few lines for people.
std::string summary(const PrepareReport& report);

}  // namespace flashgpt
