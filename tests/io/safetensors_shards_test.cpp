#include "io/safetensors_shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

std::vector<float> floats_of(const StoredTensor& t) {
  std::vector<float> list(static_cast<std::size_t>(t.shape.numel()));
  read_floats(t, "t", list.data());
  return list;
}

struct Shards : ::testing::Test {
  TestFolder folder;

  // a: 3 floats, b: 1, c: 2, all counting on.
  void write(std::uint64_t max_bytes) {
    ShardedWriter out(folder.path(), {{.name = "a", .shape = {3}}, {.name = "b", .shape = {1}}, {.name = "c", .shape = {2}}}, max_bytes);
    const float values[] = {1, 2, 3, 4, 5, 6};
    auto add = [&](const char* name, int first, int count) {
      out.add(name, {reinterpret_cast<const std::byte*>(values + first), static_cast<std::size_t>(count) * 4});
    };
    add("a", 0, 1);
    add("a", 1, 2);
    add("b", 3, 1);
    add("c", 4, 2);
    out.commit();
  }
  std::vector<std::string> names() {
    std::vector<std::string> list;
    for (const fs::path& p : list_directory(folder.path())) list.push_back(p.filename().string());
    return list;
  }
  void index(const std::string& text) { write_atomic(folder / "model.safetensors.index.json", text); }
  void rejects(const std::string& part) {
    expect_error([&] { ShardedReader reader(folder.path()); }, part);
  }
};

TEST_F(Shards, EachSizeReadsTheSame) {
  for (const auto& [size, files] : std::vector<std::pair<std::uint64_t, std::size_t>>{{100, 1}, {16, 3}, {12, 3}, {1, 4}, {24, 1}}) {
    SCOPED_TRACE(size);
    write(size);  // over what was there
    EXPECT_EQ(names().size(), files);
    const ShardedReader reader(folder.path());
    EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(floats_of(*reader.find("a")), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(floats_of(*reader.find("c")), (std::vector<float>{5, 6}));
    EXPECT_EQ(reader.find("d"), nullptr);
  }
}

TEST_F(Shards, IndexAsTransformersWritesIt) {
  write(16);
  EXPECT_EQ(names(), (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                               "model.safetensors.index.json"}));
  const Json json = parse_json(read_file(folder / "model.safetensors.index.json"), "index");
  EXPECT_EQ(json["metadata"]["total_size"], 24);
  EXPECT_EQ(json["weight_map"]["c"], "model-00002-of-00002.safetensors");
  EXPECT_NE(ShardedReader(folder.path()).where("c").find("00002-of-00002.safetensors: tensor c"), std::string::npos);
}

TEST_F(Shards, NothingIsSeenBeforeCommit) {
  write(16);
  const auto before = names();
  {
    ShardedWriter out(folder.path(), {{.name = "x", .shape = {2}}, {.name = "y", .shape = {2}}}, 8);
    const float value = 1;
    out.add("x", {reinterpret_cast<const std::byte*>(&value), 4});
    expect_error([&] { out.commit(); }, "tensor x is incomplete");
  }
  EXPECT_EQ(names(), before);
  EXPECT_EQ(floats_of(*ShardedReader(folder.path()).find("b")), (std::vector<float>{4}));
}

TEST_F(Shards, HostileIndex) {
  rejects("neither model.safetensors nor");
  write_atomic(folder / "pytorch_model.bin", "x");
  rejects("safe_serialization");
  write(16);
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  index("{");
  rejects("index.json: line 1");
  index("[]");
  rejects("no object \"weight_map\"");
  index(R"({"weight_map": {"a": 3}})");
  rejects("a is 3");
  for (const char* name : {"", ".", "..", "../x.safetensors", "/etc/passwd", "a\\\\b", "x\\u0000y"}) {
    index(cat(R"({"weight_map": {"a": ")", name, R"("}})"));
    rejects("expected the name of a file of the same folder");
  }
  index(R"({"weight_map": {"a": "none.safetensors"}})");
  rejects("none.safetensors");
  index(R"({"weight_map": {"a": "x", "a": "y"}})");
  rejects("given twice");
  index(cat(R"({"weight_map": {"a": ")", first, R"(", "b": ")", first, R"(", "c": ")", second, R"(", "d": ")", second, R"("}})"));
  rejects("tensor d is not in model-00002");
  index(cat(R"({"weight_map": {"a": ")", first, R"(", "b": ")", first, R"("}})"));
  EXPECT_NO_THROW(ShardedReader reader(folder.path()));  // a file that the index does not name is not opened
  index(cat(R"({"weight_map": {"a": ")", first, R"(", "c": ")", second, R"("}})"));
  rejects("tensor b is not in the index");
  write_atomic(folder / "third.safetensors", read_file(folder / second.c_str()));
  index(cat(R"({"weight_map": {"a": ")", first, R"(", "b": ")", first, R"(", "c": ")", second, R"("}})"));
  EXPECT_NO_THROW(ShardedReader reader(folder.path()));
}

TEST_F(Shards, SameTensorInTwoFiles) {
  write(16);
  const std::string first = read_file(folder / "model-00001-of-00002.safetensors");
  write_atomic(folder / "z.safetensors", first);
  index(R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "z.safetensors"}})");
  rejects("is in ");
}

// Every 16-bit pattern against its definition.
TEST(ReadFloats, HalfTypesExactly) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16}) {
    const int exponent_bits = dtype == Dtype::kF16 ? 5 : 8, fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
      const StoredTensor t{.name = "t", .type = "?", .dtype = dtype, .shape = {1}, .bytes = std::as_bytes(std::span(&bits, 1))};
      float got = 0;
      if (exponent == (1 << exponent_bits) - 1) {
        ASSERT_THROW(read_floats(t, "t", &got), Error);
        continue;
      }
      double want = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                  : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
      if (bits & 0x8000) want = -want;
      read_floats(t, "t", &got);
      ASSERT_EQ(static_cast<double>(got), want) << pattern;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << pattern;
    }
  }
}

TEST(ReadFloats, WiderTypesAndRefusals) {
  const double wide[] = {0.1, 1e300};
  auto tensor = [](Dtype dtype, const char* type, auto&& span) {
    return StoredTensor{.name = "t", .type = type, .dtype = dtype, .shape = {2}, .bytes = std::as_bytes(span)};
  };
  float got[2];
  expect_error([&] { read_floats(tensor(Dtype::kF64, "F64", std::span(wide)), "f: tensor t", got); }, "f: tensor t: element 1 is inf");
  EXPECT_EQ(got[0], 0.1f);
  const std::int64_t whole[] = {1, 2};
  expect_error([&] { read_floats(tensor(Dtype::kI64, "I64", std::span(whole)), "t", got); }, "is I64, expected F32");
  const float nan[] = {1, std::numeric_limits<float>::quiet_NaN()};
  expect_error([&] { read_floats(tensor(Dtype::kF32, "F32", std::span(nan)), "t", got); }, "element 1 is nan");
}

}  // namespace
}  // namespace flashgpt
