// A model's tensors in one file or in several (Hugging Face):
//   DIR/model.safetensors
//   DIR/model.safetensors.index.json   {"metadata": {"total_size": BYTES}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
//   DIR/model-00001-of-00002.safetensors ...
// Where both forms are, the single file is read, as `transformers` does.
#pragma once
#include <filesystem>
#include <memory>

#include "io/safetensors.h"

namespace flashgpt {

// Opens every file and checks that the index and the files say the same. An Error names the file and the tensor.
class ShardedReader {
 public:
  explicit ShardedReader(const std::filesystem::path& folder);

  std::vector<std::string> names() const;
  const StoredTensor* find(std::string_view name) const;  // null: not there
  // "FILE: tensor NAME", for messages about a tensor that is there.
  std::string where(std::string_view name) const;
  const std::string& path() const { return path_; }  // of the single file or the index

 private:
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, std::size_t, std::less<>> file_of_;  // by the tensor's name
};

// The tensor's elements as floats, from bf16, fp16, fp32 or fp64. Error, beginning with `where`, for another type, and for a value that is
// not finite.
void read_floats(const StoredTensor& tensor, const std::string& where, float* to);

// Writes tensor by tensor, in the order given, and starts a new file where the one before it would pass max_bytes (a tensor is never cut).
// Nothing is seen before commit(), which puts the files in their places, then the index, then removes what an earlier model of the folder
// left; a reader that comes in between may see files of both, so a folder that is in use is better replaced whole.
class ShardedWriter {
 public:
  ShardedWriter(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors, std::uint64_t max_bytes);

  void add(std::string_view name, std::span<const std::byte> bytes);  // in order; a tensor may come in parts
  void commit();

 private:
  std::filesystem::path folder_;
  std::vector<std::string> file_names_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
  std::uint64_t total_ = 0;
};

}  // namespace flashgpt
