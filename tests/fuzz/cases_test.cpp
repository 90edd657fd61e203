// The fuzzer's seeds and its findings so far, each a file in seeds/TARGET or cases/TARGET, by the same functions, without a fuzzer.
#include <gtest/gtest.h>

#include "fuzz/targets.h"
#include "io/file.h"

namespace flashgpt {
namespace {

class Cases : public testing::TestWithParam<fuzz::Target> {};

TEST_P(Cases, EveryOneEndsInAnAnswer) {
  int files = 0;
  for (const char* kind : {"seeds", "cases"}) {
    const std::filesystem::path folder = std::filesystem::path(FLASHGPT_FUZZ_FOLDER) / kind / GetParam().name;
    if (!exists(folder)) continue;
    for (const std::filesystem::path& file : list_directory(folder)) {
      SCOPED_TRACE(file.string());
      EXPECT_NO_THROW(GetParam().run(read_file(file)));
      ++files;
    }
  }
  EXPECT_GT(files, 0);
  EXPECT_NO_THROW(GetParam().run(""));
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Cases,
                         testing::Values(fuzz::Target{"safetensors", fuzz::safetensors}, fuzz::Target{"tokenizer", fuzz::tokenizer},
                                         fuzz::Target{"yaml", fuzz::yaml}, fuzz::Target{"shard", fuzz::shard},
                                         fuzz::Target{"checkpoint", fuzz::checkpoint}, fuzz::Target{"attention", fuzz::attention}),
                         [](const testing::TestParamInfo<fuzz::Target>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashgpt
