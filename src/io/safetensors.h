// The safetensors format (Hugging Face): named tensors in one file that can be mapped.
//   u64 length of the header, little endian | header: JSON, padded with spaces so that the data starts at a multiple of 8 | data
//   {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
// Offsets count from the start of the data. Tensors are row-major, follow each other without holes or overlaps, and fill the data.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashgpt/tensor.h"
#include "io/file.h"

namespace flashgpt {

using Metadata = std::map<std::string, std::string>;

struct StoredTensor {
  std::string name;
  std::string type;            // as in the file: "BF16"
  std::optional<Dtype> dtype;  // absent: a type of the format that this program does not compute with ("I8", "F8_E4M3", "BOOL", ...)
  Shape shape;
  // In the mapped file. Files of other programs need not align it to the element size: copy it out.
  std::span<const std::byte> bytes;
};

// Checks everything that the header says against the format and the file's size when it is opened: an Error names file and tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  const StoredTensor* find(std::string_view name) const;  // null: not in the file
  const StoredTensor& at(std::string_view name) const;    // Error when it is not
  // The tensor, which must be of this shape and dtype: an Error says what it is instead.
  const StoredTensor& at(std::string_view name, const Shape& shape, Dtype dtype) const;

 private:
  std::string path_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  Metadata metadata_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
};

// Writes a file tensor by tensor, holding none of them; nothing is seen under the name before commit().
class SafetensorsWriter {
 public:
  // The header is written at once, "format": "pt" added to the metadata. Order: a tensor must start at a multiple of its element size, or
  // PyTorch cannot view it, so those of wider types come first. Error: a name given twice, such an order.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors, Metadata metadata = {});

  // The next tensor's bytes, or the next part of them. Error: another name than the one whose turn it is, more bytes than it has.
  void add(std::string_view name, std::span<const std::byte> bytes);
  void add(std::string_view name, const void* data, std::size_t bytes) { add(name, {static_cast<const std::byte*>(data), bytes}); }
  void commit();  // Error when a tensor is missing or has too few bytes

 private:
  void skip_complete(std::string_view until);

  std::string path_;
  AtomicFile file_;
  std::vector<TensorSpec> tensors_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0;  // of tensors_[current_]
};

}  // namespace flashgpt
