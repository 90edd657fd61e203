// A folder of shards as `data prepare` leaves it, opened for training. meta.json:
//   {"format": "flashgpt-data", "version": 1, "checksum": "16 hex digits",
//    "tokenizer": {"name", "vocab_size", "end_of_text", "hash"},
//    "train": {"tokens", "documents", "text_bytes", "shards": [{"file", "tokens", "documents", "text_bytes", "checksum"}]}, "val": the
//    same, "report": {"lengths", "skipped", ...}}
// Only shards that meta.json names are read, so what an earlier call left there does no harm.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/shard.h"
#include "io/json.h"

namespace flashgpt {

inline constexpr const char* kMetaFile = "meta.json";

struct ShardEntry {
  std::string file;  // in the folder
  ShardInfo info;
};

struct SplitInfo {
  std::int64_t tokens = 0, documents = 0, text_bytes = 0;
  std::vector<ShardEntry> shards;
  void add(ShardEntry shard);
};

struct DatasetInfo {
  TokenizerInfo tokenizer;
  SplitInfo train, val;
  // Of all shards, in order: a checkpoint keeps it, so that a run does not go on with other data unasked.
  std::uint64_t checksum() const;
};

// report: an object for people and tools, "report" in the file; nothing here reads it.
void write_meta(const std::string& folder, const DatasetInfo& info, const OrderedJson& report);
DatasetInfo read_meta(const std::string& folder);

// Loaders refer to its streams: open it before them and do not move it.
class Dataset {
 public:
  // An Error names the file that is missing, damaged, or made with another tokenizer than the rest.
  static Dataset open(const std::string& folder, Verify verify = Verify::kChecksum);

  const DatasetInfo& info() const { return info_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const TokenStream& train() const { return train_; }
  bool has_val() const { return info_.val.tokens > 0; }
  const TokenStream& val() const { return val_; }  // empty when nothing was held out

 private:
  explicit Dataset(const std::string& folder);

  DatasetInfo info_;
  Tokenizer tokenizer_;
  std::vector<Shard> shards_;
  TokenStream train_, val_;
};

}  // namespace flashgpt
