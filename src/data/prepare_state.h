// What a `data prepare` that was stopped had finished, so that the same call goes on: OUT/prepare.json
//   {"fingerprint": "16 hex digits", "train": [shards as in meta.json], "val": [shards]}
// written whenever a shard is whole, removed when meta.json is there.
#pragma once
#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace flashgpt {

inline constexpr const char* kPrepareStateFile = "prepare.json";

struct PrepareState {
  std::uint64_t fingerprint = 0;  // of all that decides the shards: documents, tokenizer, splitting, sizes
  SplitInfo train, val;
};

void write_prepare_state(const std::string& folder, const PrepareState& state);
// The finished shards of a call with this fingerprint, each read and found whole; none when there is anything amiss.
PrepareState read_prepare_state(const std::string& folder, std::uint64_t fingerprint);

}  // namespace flashgpt
