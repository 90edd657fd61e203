// A checkpoint's folder. The input is a sequence of files: a byte that says which, two bytes of its length, its text. Then everything that
// looks at such a folder does.
#include "fuzz/targets.h"
#include "io/file.h"
#include "io/safetensors_shards.h"
#include "model/hf_config.h"
#include "train/checkpoint_files.h"

namespace flashgpt::fuzz {

void checkpoint(std::string_view bytes) {
  static const Folder folder;
  const std::filesystem::path step = folder.path() / "run/checkpoints/step_00000007";
  std::error_code ignored;
  std::filesystem::remove_all(folder.path() / "run", ignored);
  constexpr const char* kNames[] = {"COMPLETE",
                                    "trainer.json",
                                    "config.json",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors",
                                    "a"};
  while (bytes.size() >= 3) {
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
    const char* name = kNames[byte(0) % std::size(kNames)];
    const std::size_t size = std::min(byte(1) + 256 * byte(2), bytes.size() - 3);
    folder.write("run/checkpoints/step_00000007/" + std::string(name), bytes.substr(3, size));
    bytes.remove_prefix(3 + size);
  }
  expect_answer([&] {
    const std::optional<Checkpoint> newest = newest_checkpoint(folder.path() / "run", [](const std::string&) {});
    if (newest) promise(newest->step == 7, "the step is that of the folder's name");
  });
  expect_answer([&] {
    const TrainerState state = read_trainer_state(step / "trainer.json");
    write_trainer_state(step / "trainer.json", state);
    promise(read_trainer_state(step / "trainer.json") == state, "a state reads back as the same");
  });
  expect_answer([&] { model_from_hf_config(read_file(step / "config.json"), "config.json"); });
  expect_answer([&] {
    const ShardedReader reader(step);
    for (const std::string& name : reader.names()) promise(reader.find(name) != nullptr, "a name is of a tensor");
  });
}

}  // namespace flashgpt::fuzz
