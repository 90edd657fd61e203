// The header of a file from elsewhere is not to be trusted: every number is checked before it is used to reach into the mapping.
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/json.h"

namespace flashgpt {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr const char* kMetadataKey = "__metadata__";

struct TypeRow {
  const char* name;
  unsigned bits;
  std::optional<Dtype> dtype;
};

constexpr TypeRow kTypes[] = {
    {"F64", 64, Dtype::kF64},
    {"F32", 32, Dtype::kF32},
    {"BF16", 16, Dtype::kBF16},
    {"F16", 16, Dtype::kF16},
    {"I64", 64, Dtype::kI64},
    {"I32", 32, Dtype::kI32},
    {"U8", 8, Dtype::kU8},
    {"I16", 16, {}},
    {"I8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

const char* type_name(Dtype dtype) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == dtype) return row.name;
  return "?";
}

// Bytes of `shape` elements of `bits` each; nothing when that overflows or is no whole number of bytes.
std::optional<std::uint64_t> bytes_of(const Shape& shape, unsigned bits) {
  std::uint64_t total = bits;
  for (int i = 0; i < shape.rank; ++i)
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(shape.dims[i]), &total)) return {};
  if (total % 8 != 0) return {};
  return total / 8;
}

struct Entry {
  StoredTensor tensor;
  std::uint64_t begin = 0, end = 0;
};

// where: "FILE: tensor NAME", for messages.
std::uint64_t number_of(const Json& value, const std::string& where, const char* what) {
  require(value.is_number_unsigned(), where, ": ", what, " holds ", compact_json(value), ", expected a whole number from 0 on");
  return value.get<std::uint64_t>();
}

const Json& field_of(const Json& entry, const std::string& where, const char* name) {
  require(entry.is_object() && entry.contains(name), where, ": no \"", name, "\" in the header");
  return entry[name];
}

Entry parse_entry(const std::string& name, const Json& json, const std::string& where, std::span<const std::byte> data) {
  Entry entry;
  StoredTensor& tensor = entry.tensor;
  tensor.name = name;
  const Json& type = field_of(json, where, "dtype");
  const TypeRow* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& t) { return type == t.name; });
  require(row != std::end(kTypes), where, ": dtype ", compact_json(type), " is not one of the format");
  tensor.type = row->name;
  tensor.dtype = row->dtype;

  const Json& shape = field_of(json, where, "shape");
  require(shape.is_array(), where, ": shape ", compact_json(shape), ", expected a list");
  require(shape.size() <= kMaxRank, where, ": shape of rank ", shape.size(), ", expected at most ", kMaxRank);
  for (const Json& dim : shape) {
    const std::uint64_t n = number_of(dim, where, "shape");
    require(n <= INT64_MAX, where, ": shape holds ", n, ", expected less than 2^63");
    tensor.shape.dims[tensor.shape.rank++] = static_cast<std::int64_t>(n);
  }
  const std::optional<std::uint64_t> bytes = bytes_of(tensor.shape, row->bits);
  require(bytes.has_value(), where, ": shape ", compact_json(shape), " of ", row->name, " is no possible number of bytes");

  const Json& offsets = field_of(json, where, "data_offsets");
  require(offsets.is_array() && offsets.size() == 2, where, ": data_offsets ", compact_json(offsets), ", expected [begin, end]");
  entry.begin = number_of(offsets[0], where, "data_offsets");
  entry.end = number_of(offsets[1], where, "data_offsets");
  require(entry.begin <= entry.end, where, ": data_offsets ", compact_json(offsets), " end before they begin");
  require(entry.end <= data.size(), where, ": data_offsets ", compact_json(offsets), " reach past the ", data.size(),
          " bytes of data; was the file cut short?");
  require(entry.end - entry.begin == *bytes, where, ": data_offsets ", compact_json(offsets), " are ", entry.end - entry.begin,
          " bytes, but shape ", compact_json(shape), " of ", row->name, " takes ", *bytes);
  tensor.bytes = data.subspan(entry.begin, *bytes);
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path.string()), file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  require(bytes.size() >= kLengthBytes, path_, ": ", bytes.size(), " bytes are too few for a safetensors file");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  require(length >= 2 && length <= kLongestHeader, path_, ": a header of ", length, " bytes, expected 2 to ", kLongestHeader,
          "; is it a safetensors file?");
  require(length <= bytes.size() - kLengthBytes, path_, ": a header of ", length, " bytes in a file of ", bytes.size(),
          "; was the file cut short?");
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  require(header.front() == '{', path_, ": the header does not start with '{'; is it a safetensors file?");
  const Json json = parse_json(header, path_ + ": header");
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + length);

  std::vector<Entry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      require(value.is_object(), path_, ": ", kMetadataKey, " is no object");
      for (const auto& [key, text] : value.items()) {
        require(text.is_string(), path_, ": ", kMetadataKey, ": ", key, " is ", compact_json(text), ", expected a string");
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    entries.push_back(parse_entry(name, value, cat(path_, ": tensor ", name), data));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  std::uint64_t end = 0;
  for (Entry& entry : entries) {
    require(entry.begin == end, path_, ": tensor ", entry.tensor.name, " starts at byte ", entry.begin, " of the data, ",
            entry.begin < end ? "inside the one before it" : "after a hole", ", expected ", end);
    end = entry.end;
    index_[entry.tensor.name] = tensors_.size();
    tensors_.push_back(std::move(entry.tensor));
  }
  require(end == data.size(), path_, ": ", data.size() - end, " bytes after the last tensor");
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  require(tensor != nullptr, path_, ": no tensor ", name, " among its ", tensors_.size());
  return *tensor;
}

const StoredTensor& SafetensorsFile::at(std::string_view name, const Shape& shape, Dtype dtype) const {
  const StoredTensor& tensor = at(name);
  require(tensor.shape == shape && tensor.dtype == dtype, path_, ": tensor ", name, " is ", tensor.type, " ", tensor.shape.str(),
          ", expected ", type_name(dtype), " ", shape.str());
  return tensor;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors, Metadata metadata)
    : path_(path.string()), file_(path), tensors_(std::move(tensors)) {
  metadata.try_emplace("format", "pt");  // transformers refuses a file without it
  Json header = Json::object();
  header[kMetadataKey] = metadata;
  std::uint64_t offset = 0;
  std::set<std::string_view> names{kMetadataKey};
  for (const TensorSpec& tensor : tensors_) {
    require(names.insert(tensor.name).second, path_, ": tensor name ", tensor.name, " is taken");
    for (int i = 0; i < tensor.shape.rank; ++i)
      require(tensor.shape.dims[i] >= 0, path_, ": tensor ", tensor.name, " of shape ", tensor.shape.str());
    const std::uint64_t width = size_of(tensor.dtype);
    require(offset % width == 0, path_, ": tensor ", tensor.name, " (", name_of(tensor.dtype), ") would start at byte ", offset,
            "; put tensors of wider types first");
    const std::uint64_t end = offset + static_cast<std::uint64_t>(tensor.shape.numel()) * width;
    header[tensor.name] = {{"dtype", type_name(tensor.dtype)},
                           {"shape", std::vector<std::int64_t>(tensor.shape.dims, tensor.shape.dims + tensor.shape.rank)},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = compact_json(header);
  while ((kLengthBytes + text.size()) % 8 != 0) text += ' ';
  require(text.size() <= kLongestHeader, path_, ": a header of ", text.size(), " bytes, more than the format's ", kLongestHeader);
  const std::uint64_t length = text.size();
  file_.write(&length, sizeof length);
  file_.write(text);
}

namespace {

std::uint64_t bytes_of(const TensorSpec& tensor) { return static_cast<std::uint64_t>(tensor.shape.numel()) * size_of(tensor.dtype); }

}  // namespace

// Moves on past tensors that have all their bytes, up to the one named.
void SafetensorsWriter::skip_complete(std::string_view until) {
  while (current_ < tensors_.size() && tensors_[current_].name != until && written_ == bytes_of(tensors_[current_])) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  skip_complete(name);
  require(current_ < tensors_.size(), path_, ": tensor ", name, " after the last one");
  const TensorSpec& tensor = tensors_[current_];
  require(tensor.name == name, path_, ": tensor ", name, " out of turn, expected ", tensor.name, " (", written_, " of ", bytes_of(tensor),
          " bytes written)");
  require(bytes.size() <= bytes_of(tensor) - written_, path_, ": tensor ", name, " gets ", written_ + bytes.size(), " bytes, expected ",
          bytes_of(tensor));
  file_.write(bytes.data(), bytes.size());
  written_ += bytes.size();
}

void SafetensorsWriter::commit() {
  skip_complete({});
  require(current_ == tensors_.size(), path_, ": tensor ", current_ < tensors_.size() ? tensors_[current_].name : "",
          " is incomplete: ", written_, " bytes written");
  file_.commit();
}

}  // namespace flashgpt
