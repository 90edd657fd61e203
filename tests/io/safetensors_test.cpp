#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/philox.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

std::string file_bytes(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

struct Safetensors : ::testing::Test {
  TestFolder folder;
  void rejects(const std::string& bytes, const std::string& part) {
    write_atomic(folder / "t.safetensors", bytes);
    expect_error([&] { SafetensorsFile(folder / "t.safetensors"); }, part);
    expect_error([&] { SafetensorsFile(folder / "t.safetensors"); }, "t.safetensors: ");
  }
  void rejects_header(const std::string& header, const std::string& data, const std::string& part) {
    rejects(file_bytes(header, data), part);
  }
};

TEST_F(Safetensors, ReadsHandWrittenBytes) {
  write_atomic(folder / "t", file_bytes(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},"a":{"dtype":"F32","shape":[1,2],)"
                                        R"("data_offsets":[0,8]},"__metadata__":{"format":"pt","x":"y"},)"
                                        R"("scalar":{"dtype":"BOOL","shape":[],"data_offsets":[11,12]},)"
                                        R"("none":{"dtype":"F16","shape":[5,0],"data_offsets":[8,8],"extra":1}}   )",
                                        "ABCDEFGHijk\1"));
  const SafetensorsFile file(folder / "t");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "none");
  EXPECT_EQ(text_of(file.at("a").bytes), "ABCDEFGH");
  EXPECT_EQ(file.at("a").shape, (Shape{1, 2}));
  EXPECT_EQ(file.at("a").dtype, Dtype::kF32);
  EXPECT_EQ(text_of(file.at("b").bytes), "ijk");
  EXPECT_EQ(file.at("scalar").shape, Shape{});
  EXPECT_EQ(file.at("scalar").type, "BOOL");
  EXPECT_FALSE(file.at("scalar").dtype.has_value());
  EXPECT_TRUE(file.at("none").bytes.empty());
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"x", "y"}}));
  EXPECT_EQ(file.find("c"), nullptr);
  expect_error([&] { file.at("c"); }, "no tensor c among its 4");
  EXPECT_NO_THROW(file.at("a", {1, 2}, Dtype::kF32));
  expect_error([&] { file.at("a", {2, 1}, Dtype::kF32); }, "tensor a is F32 [1, 2], expected F32 [2, 1]");
  expect_error([&] { file.at("a", {1, 2}, Dtype::kBF16); }, "expected BF16 [1, 2]");
  expect_error([&] { file.at("scalar", {}, Dtype::kU8); }, "tensor scalar is BOOL []");
}

TEST_F(Safetensors, AnEmptyListIsAFile) {
  write_atomic(folder / "t", file_bytes("{}", ""));
  EXPECT_TRUE(SafetensorsFile(folder / "t").tensors().empty());
}

TEST_F(Safetensors, RejectsABadFrame) {
  rejects("", "too few");
  rejects("1234567", "too few");
  rejects(std::string(8, '\0'), "a header of 0 bytes");
  rejects(std::string(8, '\xff') + "{}", "is it a safetensors file");
  rejects(file_bytes("{}", "").substr(0, 9), "cut short");
  rejects(file_bytes(" {}", ""), "does not start with '{'");
  rejects(file_bytes("[]", ""), "does not start with '{'");
  rejects(file_bytes("{]", ""), "header: line 1, column 2");
  rejects(file_bytes("{\"a\":\"\xff\"}", ""), "header: line 1");
}

TEST_F(Safetensors, RejectsABadEntry) {
  auto entry = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  const std::string data(8, 'x');
  rejects_header("{\"w\":3}", data, "tensor w: no \"dtype\"");
  rejects_header(entry(R"("shape":[2],"data_offsets":[0,8])"), data, "tensor w: no \"dtype\"");
  rejects_header(entry(R"("dtype":"F32","data_offsets":[0,8])"), data, "tensor w: no \"shape\"");
  rejects_header(entry(R"("dtype":"F32","shape":[2])"), data, "tensor w: no \"data_offsets\"");
  rejects_header(entry(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"), data, "dtype \"f32\" is not one");
  rejects_header(entry(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), data, "dtype 7 is not one");
  rejects_header(entry(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), data, "tensor w: shape 2");
  rejects_header(entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), data, "shape holds -2");
  rejects_header(entry(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), data, "shape holds 2.0");
  rejects_header(entry(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), data, "shape holds \"2\"");
  rejects_header(entry(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), data, "less than 2^63");
  rejects_header(entry(R"("dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8])"), data, "no possible number");
  rejects_header(entry(R"("dtype":"F32","shape":[1,1,1,1,1,2],"data_offsets":[0,8])"), data, "rank 6");
  rejects_header(entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,8])"), data, "no possible number");
  rejects_header(entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), data, "takes 12");
  rejects_header(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), data, "end before they begin");
  rejects_header(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), data, "expected [begin, end]");
  rejects_header(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,-8])"), data, "data_offsets holds -8");
  rejects_header(entry(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), data, "cut short");
  rejects_header(entry(R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615])"), data, "reach past");
  rejects_header(R"({"__metadata__":[]})", "", "__metadata__ is no object");
  rejects_header(R"({"__metadata__":{"a":1}})", "", "a is 1, expected a string");
}

TEST_F(Safetensors, RejectsOverlapsHolesAndEqualNames) {
  auto pair = [](const std::string& a, const std::string& b, const std::string& second = "b") {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a + "},\"" + second + R"(":{"dtype":"U8","shape":[4],"data_offsets":)" +
           b + "}}";
  };
  const std::string data(8, 'x');
  rejects_header(pair("[0,4]", "[2,6]"), data, "tensor b starts at byte 2 of the data, inside the one before it");
  rejects_header(pair("[0,4]", "[0,4]"), data, "inside");
  rejects_header(pair("[0,4]", "[4,8]"), data + "z", "1 bytes after the last tensor");
  rejects_header(pair("[1,5]", "[5,9]"), data + "z", "tensor a starts at byte 1 of the data, after a hole");
  rejects_header(pair("[0,4]", "[5,9]"), data + "z", "after a hole");
  rejects_header(pair("[0,4]", "[4,8]", "a"), data, "key \"a\" is given twice");
  rejects_header("{}", "z", "1 bytes after");
}

// Whatever a byte of a good file is changed to, or wherever it ends: a file that is read, or an Error; never a read outside (ASan).
TEST_F(Safetensors, DamageIsNoticedOrHarmless) {
  const std::string good = file_bytes(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"v":{"dtype":"U8","shape":[1],)"
                                      R"("data_offsets":[8,9]}})",
                                      "abcdefgh9");
  int read = 0;
  auto try_bytes = [&](const std::string& bytes) {
    write_atomic(folder / "t", bytes);
    try {
      const SafetensorsFile file(folder / "t");
      for (const StoredTensor& tensor : file.tensors()) EXPECT_EQ(text_of(tensor.bytes).size(), tensor.bytes.size());
      ++read;
    } catch (const Error&) {
    }
  };
  for (std::size_t cut = 0; cut < good.size(); ++cut) try_bytes(good.substr(0, cut));
  EXPECT_EQ(read, 0);
  for (std::uint64_t i = 0; i < 300; ++i) {
    const PhiloxBlock random = philox({static_cast<std::uint32_t>(i), 0, 0, 0}, 1);
    std::string bytes = good;
    bytes[random[0] % bytes.size()] = static_cast<char>(random[1]);
    try_bytes(bytes);
  }
}

TEST_F(Safetensors, WriterAndReaderAgree) {
  const float w[6] = {1, 2, 3, 4, 5, 6};
  const std::uint16_t b[3] = {7, 8, 9};
  SafetensorsWriter out(folder / "t", {{"model.w", Dtype::kF32, {2, 3}}, {"empty", Dtype::kF32, {0}}, {"b\"", Dtype::kBF16, {3}}},
                        {{"step", "3"}});
  out.add("model.w", w, 8);
  out.add("model.w", w + 2, 16);
  out.add("b\"", b, sizeof b);
  EXPECT_FALSE(exists(folder / "t"));
  out.commit();
  EXPECT_EQ(list_directory(folder.path()).size(), 1u);
  const SafetensorsFile file(folder / "t");
  EXPECT_EQ(std::memcmp(file.at("model.w", {2, 3}, Dtype::kF32).bytes.data(), w, sizeof w), 0);
  EXPECT_EQ(std::memcmp(file.at("b\"", {3}, Dtype::kBF16).bytes.data(), b, sizeof b), 0);
  EXPECT_EQ(file.at("empty").bytes.size(), 0u);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"step", "3"}}));
  const std::string bytes = read_file(folder / "t");
  EXPECT_EQ((bytes.size() - sizeof w - sizeof b) % 8, 0u);
}

TEST_F(Safetensors, TheBytesAreThese) {
  SafetensorsWriter out(folder / "t", {{"w", Dtype::kU8, {2}}});
  out.add("w", "hi", 2);
  out.commit();
  EXPECT_EQ(read_file(folder / "t"),
            file_bytes(R"({"__metadata__":{"format":"pt"},"w":{"data_offsets":[0,2],"dtype":"U8","shape":[2]}}    )", "hi"));
}

TEST_F(Safetensors, WriterKeepsOrderAndSizes) {
  const std::vector<TensorSpec> specs{{"a", Dtype::kF32, {2}}, {"b", Dtype::kU8, {1}}};
  const char bytes[9] = {};
  expect_error([&] { SafetensorsWriter(folder / "t", specs).add("b", bytes, 1); }, "tensor b out of turn, expected a");
  expect_error([&] { SafetensorsWriter(folder / "t", specs).add("a", bytes, 9); }, "tensor a gets 9 bytes, expected 8");
  expect_error([&] { SafetensorsWriter(folder / "t", specs).commit(); }, "tensor a is incomplete: 0 bytes");
  SafetensorsWriter out(folder / "t", specs);
  out.add("a", bytes, 8);
  expect_error([&] { out.add("a", bytes, 1); }, "tensor a gets 9 bytes");
  expect_error([&] { out.commit(); }, "tensor b is incomplete");
  out.add("b", bytes, 1);
  expect_error([&] { out.add("c", bytes, 1); }, "tensor c after the last one");
  out.commit();
  EXPECT_EQ(list_directory(folder.path()).size(), 1u);
  expect_error([&] { SafetensorsWriter(folder / "u", {{"a", Dtype::kU8, {1}}, {"a", Dtype::kU8, {1}}}); }, "name a is taken");
  expect_error([&] { SafetensorsWriter(folder / "u", {{"__metadata__", Dtype::kU8, {1}}}); }, "is taken");
  expect_error([&] { SafetensorsWriter(folder / "u", {{"a", Dtype::kU8, {1}}, {"b", Dtype::kF32, {1}}}); }, "wider types first");
  EXPECT_FALSE(exists(folder / "u"));
}

}  // namespace
}  // namespace flashgpt
