// trainer.json and COMPLETE as a crash or another hand may leave them: each fault is an Error or a text that names what is wrong.
#include "train/checkpoint_files.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

TrainerState some_state() {
  return {.step = 12,
          .updates = 11,
          .skipped = 1,
          .position = 48,
          .tokens = 9000,
          .seconds = 1.5,
          .data_checksum = ~0ull,
          .seed = ~0ull,
          .context_len = 64,
          .blas = "X \"1\""};
}

TEST(TrainerState, ReadsBackAsItWasWritten) {
  const TestFolder folder;
  write_trainer_state(folder / "trainer.json", some_state());
  EXPECT_EQ(read_trainer_state(folder / "trainer.json"), some_state());
}

TEST(TrainerState, WrongValuesAreErrorsThatNameTheKey) {
  const TestFolder folder;
  write_trainer_state(folder / "trainer.json", some_state());
  const std::string good = read_file(folder / "trainer.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_atomic(folder / "trainer.json", text.replace(at, from.size(), to));
  };
  const auto read = [&] { read_trainer_state(folder / "trainer.json"); };
  for (const char* value : {"-1", "1e300", "12.5", "\"12\"", "null", "[]", "18446744073709551615"}) {
    with("\"step\": 12", std::string("\"step\": ") + value);
    expect_error(read, "step");
  }
  for (const char* value : {"\"\"", "\"xyz\"", "\"0xffff\"", "\"fffffffffffffffff\"", "\" 1\"", "7"}) {
    with("\"data_checksum\": \"ffffffffffffffff\"", std::string("\"data_checksum\": ") + value);
    expect_error(read, "data_checksum");
  }
  with("\"seconds\": 1.5", "\"seconds\": -1");
  expect_error(read, "seconds");
  with("\"format\": 1", "\"format\": 2");
  expect_error(read, "format = 2");
  with("\"tokens\"", "\"tokns\"");
  expect_error(read, "no tokens");
  for (const char* text : {"", "[]", "7", "{\"format\": 1"}) {
    write_atomic(folder / "trainer.json", text);
    expect_error(read, "trainer.json");
  }
}

TEST(Complete, FaultsAreTold) {
  const TestFolder folder;
  EXPECT_EQ(checkpoint_fault(folder.path(), Look::kSizes), "it was never finished");
  write_atomic(folder / "a", "abc");
  write_complete(folder.path());
  EXPECT_EQ(checkpoint_fault(folder.path(), Look::kChecksums), "");
  write_atomic(folder / "a", "abd");
  EXPECT_EQ(checkpoint_fault(folder.path(), Look::kSizes), "");
  EXPECT_NE(checkpoint_fault(folder.path(), Look::kChecksums), "");
  for (const char* list : {"{}", "[]", "[{\"bytes\": 3}]", "7", "{\"a\": 7}", "{\"a\": {\"bytes\": -3, \"checksum\": \"0\"}}",
                           "{\"a\": {\"bytes\": 1e300, \"checksum\": \"0\"}}", "{\"a\": {\"bytes\": 3}}",
                           "{\"a\": {\"bytes\": 3, \"checksum\": 0}}", "{\"../a\": {\"bytes\": 3, \"checksum\": \"0\"}}",
                           "{\"\": {\"bytes\": 3, \"checksum\": \"0\"}}", "{\"missing\": {\"bytes\": 3, \"checksum\": \"0\"}}"}) {
    write_atomic(folder / "COMPLETE", list);
    EXPECT_NE(checkpoint_fault(folder.path(), Look::kSizes), "") << list;
  }
  write_atomic(folder / "COMPLETE",
               "{\"" + std::string(5000, 'n') + "\": {\"bytes\": 3, \"checksum\": \"0\"}}");  // a name that no file system takes
  EXPECT_NE(checkpoint_fault(folder.path(), Look::kSizes), "");
}

TEST(CheckpointNames, OnlyOurs) {
  EXPECT_EQ(checkpoint_name(120), "step_00000120");
  EXPECT_EQ(checkpoint_step("step_00000120"), 120);
  EXPECT_EQ(checkpoint_step(checkpoint_name(1234567890123)), 1234567890123);
  for (const char* name : {"step_", "step_12x", "step_-1", "latest", "step_00000120.tmp", "step_99999999999999999999999"})
    EXPECT_EQ(checkpoint_step(name), -1) << name;
}

}  // namespace
}  // namespace flashgpt
