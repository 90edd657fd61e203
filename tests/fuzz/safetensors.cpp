// A safetensors file: every tensor lies in the file, and is found by its name.
#include "io/safetensors.h"

#include "fuzz/targets.h"
#include "io/safetensors_shards.h"

namespace flashgpt::fuzz {

void safetensors(std::string_view bytes) {
  static const Folder folder;
  const std::filesystem::path path = folder.write("model.safetensors", bytes);
  expect_answer([&] {
    const SafetensorsFile file(path);
    unsigned sum = 0;
    for (const StoredTensor& t : file.tensors()) {
      for (const std::byte b : t.bytes) sum += std::to_integer<unsigned>(b);
      promise(file.find(t.name) == &t, "a tensor is found by its name");
      if (t.dtype) promise(t.bytes.size() == static_cast<std::size_t>(t.shape.numel()) * size_of(*t.dtype), "bytes fit the shape");
    }
    volatile unsigned read = sum;  // or nothing is read
    (void)read;
  });
  expect_answer([&] {
    const ShardedReader reader(folder.path());
    for (const std::string& name : reader.names()) {
      const StoredTensor* t = reader.find(name);
      promise(t != nullptr, "a name is of a tensor");
      if (!t->dtype || t->bytes.size() > (1u << 20)) continue;
      std::vector<float> values(static_cast<std::size_t>(t->shape.numel()));
      expect_answer([&] { read_floats(*t, reader.where(name), values.data()); });
    }
  });
}

}  // namespace flashgpt::fuzz
