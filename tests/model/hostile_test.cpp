// Model folders that are damaged, or made to do harm: an error that names file and tensor, never a crash (the sanitizers watch).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "io/file.h"
#include "io/safetensors_shards.h"
#include "io/test_folder.h"
#include "model/golden.h"
#include "train/engine.h"

namespace flashgpt::testing {
namespace {

namespace fs = std::filesystem;

struct Copied {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// The golden GPT-2 as plain tensors, to be changed and written again.
struct Gpt2Folder {
  Golden golden{"gpt2"};
  TestFolder folder;
  std::vector<Copied> tensors;

  Gpt2Folder() {
    fs::copy_file(golden.folder / "config.json", folder / "config.json");
    const ShardedReader files(golden.folder);
    for (const std::string& name : files.names()) {
      const StoredTensor& t = *files.find(name);
      Copied c{.name = name, .values = std::vector<float>(static_cast<std::size_t>(t.shape.numel()))};
      c.shape.assign(t.shape.dims, t.shape.dims + t.shape.rank);
      read_floats(t, name, c.values.data());
      tensors.push_back(c);
    }
  }
  Copied& at(const std::string& name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const Copied& c) { return c.name == name; });
  }
  void write() {
    std::vector<TensorSpec> specs;
    for (const Copied& c : tensors) {
      Shape shape;
      for (std::int64_t d : c.shape) shape.dims[shape.rank++] = d;
      specs.push_back({.name = c.name, .shape = shape});
    }
    SafetensorsWriter out(folder / "model.safetensors", specs);
    for (const Copied& c : tensors) out.add(c.name, c.values.data(), c.values.size() * sizeof(float));
    out.commit();
  }
  double loss() {  // of one row
    write();
    ThreadPool pool(1, false);
    Engine e(cpu_target(1), {.model = load_model_config(folder.path()), .context_len = golden.length, .train = false}, pool);
    load_weights(e.context(), e.params(), e.weights(), folder.path());
    std::vector<std::int32_t> targets(golden.ids.begin() + 1, golden.ids.begin() + 1 + golden.length), positions(targets.size()),
        cu(targets.size() + 1, 24);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
    cu[0] = 0;
    return e.evaluate({golden.ids.data(), targets.data(), positions.data(), cu.data()});
  }
};

TEST(ForeignWeights, NamesWithoutPrefixAndTensorsThatAreNoWeights) {
  Gpt2Folder f;
  const double loss = f.loss();
  f.tensors.push_back(
      {.name = "lm_head.weight", .shape = f.at("transformer.wte.weight").shape, .values = f.at("transformer.wte.weight").values});
  EXPECT_EQ(f.loss(), loss);
  for (Copied& c : f.tensors)
    if (c.name.starts_with("transformer.")) c.name = c.name.substr(12);
  f.tensors.push_back({.name = "h.0.attn.bias", .shape = {1, 1, 2, 2}, .values = {1, 0, 1, 1}});
  f.tensors.push_back({.name = "h.0.attn.masked_bias", .shape = {}, .values = {-10000}});
  EXPECT_EQ(f.loss(), loss);
}

TEST(ForeignWeights, FaultsNameFileAndTensor) {
  Gpt2Folder f;
  auto refuses = [&](const std::string& part) {
    expect_error([&] { f.loss(); }, part);
    expect_error([&] { f.loss(); }, "model.safetensors");
  };
  Copied& norm = f.at("transformer.h.1.ln_2.bias");
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    norm.values[3] = bad;
    refuses("transformer.h.1.ln_2.bias: element 3 is ");
  }
  norm.values[3] = 0;
  norm.name = "transformer.h.1.ln_2.base";
  refuses("no tensor transformer.h.1.ln_2.bias");
  norm.name = "transformer.h.1.ln_2.bias";
  norm.shape = {4, 4};
  refuses("has shape [4, 4], expected [16]");
  norm.shape = {16};
  f.tensors.push_back({.name = "transformer.h.1.adapter.weight", .shape = {1}, .values = {0}});
  refuses("tensor transformer.h.1.adapter.weight does not belong to the model");
}

// Bytes changed at random, cut off and doubled: each file either loads or gives an Error. FLASHGPT_FUZZ_ROUNDS=100000 looks for longer.
TEST(HostileFolder, RandomDamage) {
  const fs::path from = fs::path(FLASHGPT_GOLDEN_MODELS) / "llama_linear";
  TestFolder folder;
  const char* names[] = {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                         "model-00002-of-00002.safetensors"};
  for (const char* name : names) fs::copy_file(from / name, folder / name);
  std::uint32_t seed = 1;
  auto random = [&](std::size_t below) {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<std::size_t>(seed >> 8) % below;
  };
  const std::string tokens[] = {"-1", "18446744073709551615", "1e999", "null", "[",      "{", "\"",
                                ",",  "9223372036854775807",  "F64",   "0",    "\\u0000"};
  auto put = [&](const char* name, const std::string& text) {  // without the sync of write_atomic
    std::FILE* out = std::fopen((folder / name).c_str(), "wb");
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), out), text.size());
    std::fclose(out);
  };
  const char* asked = std::getenv("FLASHGPT_FUZZ_ROUNDS");
  const int rounds = asked ? std::atoi(asked) : 150;
  int errors = 0;
  for (int round = 0; round < rounds; ++round) {
    const char* name = names[random(4)];
    const std::string good = read_file(folder / name);
    std::string text = good;
    const std::size_t header = std::min<std::size_t>(text.size(), 1400);  // most damage where lengths and names are
    for (std::size_t edits = 1 + random(3); edits > 0; --edits) {
      const std::size_t at = random(header);
      switch (random(5)) {
        case 0: text[at] = static_cast<char>(random(256)); break;
        case 1: text[at] = static_cast<char>(text[at] ^ (1 << random(8))); break;
        case 2: text.resize(std::max<std::size_t>(header, random(text.size()))); break;
        case 3: text.replace(at, random(8), tokens[random(std::size(tokens))]); break;
        default: text.insert(at, text.substr(random(header), random(40)));
      }
    }
    put(name, text);
    try {
      load_model_config(folder.path());
      const ShardedReader files(folder.path());
      for (const std::string& tensor : files.names()) {
        std::vector<float> values(static_cast<std::size_t>(files.find(tensor)->shape.numel()));
        read_floats(*files.find(tensor), tensor, values.data());
      }
    } catch (const Error&) {
      ++errors;
    }
    put(name, good);
  }
  EXPECT_GT(errors, rounds / 3);
}

}  // namespace
}  // namespace flashgpt::testing
