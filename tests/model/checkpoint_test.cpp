// A model written as a Hugging Face folder and read back: the same bits, the family's names and shapes.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/file.h"
#include "io/safetensors.h"
#include "model/hf_config.h"
#include "train/engine.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("flashgpt_model_test_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

ModelConfig tiny(Family family) {
  ModelConfig c{.family = family, .layers = 2, .width = 32, .heads = 4, .mlp_hidden = 64, .vocab_size = 37, .context_len = 16};
  if (family == Family::kLlama) c.kv_heads = 2;
  if (family == Family::kMpt) c.mlp_hidden = 128;
  return complete(c);
}

class ModelFolder : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Checkpoint, ModelFolder, testing::Values(Family::kGpt2, Family::kLlama, Family::kMpt),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(ModelFolder, RoundTripIsBitwise) {
  const Folder folder;
  ThreadPool pool(1, false);
  const EngineConfig config{.model = tiny(GetParam()), .context_len = 16};
  Engine a(cpu_target(1), config, pool), b(cpu_target(1), config, pool);
  a.initialise_weights(1);
  b.initialise_weights(2);
  save_model(a.context(), config.model, a.params(), a.weights(), {.end_of_text = 36}, folder.path);
  EXPECT_EQ(load_model_config(folder.path), config.model);
  load_weights(b.context(), b.params(), b.weights(), folder.path);
  for (std::size_t i = 0; i < a.params().size(); ++i)
    EXPECT_EQ(0, std::memcmp(a.weights().tensors[i].data, b.weights().tensors[i].data, a.weights().tensors[i].bytes()))
        << a.params()[i].name;
}

TEST(Checkpoint, NamesAndShapesOfTheFamilies) {
  const Folder folder;
  ThreadPool pool(1, false);
  auto shape_of = [&](Family family, const char* name) {
    const EngineConfig config{.model = tiny(family), .context_len = 16};
    Engine e(cpu_target(1), config, pool);
    e.initialise_weights(1);
    save_model(e.context(), config.model, e.params(), e.weights(), {.end_of_text = 36}, folder.path);
    return SafetensorsFile(folder.path / "model.safetensors").at(name).shape.str();
  };
  EXPECT_EQ(shape_of(Family::kGpt2, "transformer.h.1.attn.c_attn.weight"), "[32, 96]");  // Conv1D: [in, out]
  EXPECT_EQ(shape_of(Family::kGpt2, "transformer.wpe.weight"), "[16, 32]");
  EXPECT_EQ(shape_of(Family::kLlama, "model.layers.0.self_attn.k_proj.weight"), "[16, 32]");
  EXPECT_EQ(shape_of(Family::kLlama, "model.layers.1.mlp.up_proj.weight"), "[64, 32]");
  EXPECT_EQ(shape_of(Family::kLlama, "lm_head.weight"), "[37, 32]");
  EXPECT_EQ(shape_of(Family::kMpt, "transformer.blocks.0.attn.Wqkv.weight"), "[96, 32]");
}

TEST(Checkpoint, FaultsNameTheTensor) {
  const Folder folder;
  ThreadPool pool(1, false);
  Engine e(cpu_target(1), {.model = tiny(Family::kGpt2), .context_len = 16}, pool);
  e.initialise_weights(1);
  save_model(e.context(), tiny(Family::kGpt2), e.params(), e.weights(), {.end_of_text = 36}, folder.path);
  ModelConfig wider = tiny(Family::kGpt2);
  wider.width = 64;
  wider.head_dim = 0;
  Engine other(cpu_target(1), {.model = wider, .context_len = 16}, pool);
  try {
    load_weights(other.context(), other.params(), other.weights(), folder.path);
    FAIL() << "another width was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("transformer.wte.weight"), std::string::npos) << error.what();
  }
  Engine llama(cpu_target(1), {.model = tiny(Family::kLlama), .context_len = 16}, pool);
  EXPECT_THROW(load_weights(llama.context(), llama.params(), llama.weights(), folder.path), Error);
}

TEST(Checkpoint, ForeignConfigsAreRefusedByName) {
  auto fault = [](const char* text) {
    try {
      model_from_hf_config(text, "config.json");
      return std::string("none");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_NE(fault(R"({"model_type": "bert", "vocab_size": 5})").find("bert"), std::string::npos);
  EXPECT_NE(fault(R"({"model_type": "gpt2"})").find("vocab_size"), std::string::npos);
  EXPECT_NE(fault(R"({"model_type": "gpt2", "vocab_size": "many"})").find("config.json"), std::string::npos);
  EXPECT_NE(
      fault(
          R"({"model_type": "gpt2", "vocab_size": 5, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2, "activation_function": "relu"})")
          .find("relu"),
      std::string::npos);
  EXPECT_NE(fault("[").find("config.json"), std::string::npos);
  EXPECT_NE(fault("[]"), "none");
}

}  // namespace
}  // namespace flashgpt
