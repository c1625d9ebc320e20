#include "engine/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::read_text;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;

template <typename T>
NamedArray array_of(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), dtype, shape, {bytes.begin(), bytes.end()}};
}

std::vector<NamedArray> one_of_each_type() {
  return {
      array_of<std::uint8_t>("pixels", DType::uint8, {3}, {1, 2, 255}),
      array_of<float>("0.weight", DType::float32, {2, 3}, {0.5f, -1, 2, 3, 4, 5}),
      array_of<double>("loss", DType::float64, {}, {0.125}),
      array_of<std::int64_t>("labels", DType::int64, {2}, {-1, 7}),
      array_of<std::int32_t>("steps", DType::int32, {1, 1}, {42}),
      array_of<std::uint16_t>("half", DType::float16, {1}, {0x3c00}),
      array_of<std::uint16_t>("brain", DType::bfloat16, {1}, {0x3f80}),
      array_of<float>("empty", DType::float32, {0, 4}, {}),
  };
}

std::string file_of(std::string_view header, std::string_view data = "") {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes.append(header).append(data);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const TempFolder folder;
  const auto arrays = one_of_each_type();
  write_safetensors(folder / "all", arrays, {{"step", "20"}, {"écrit", "\"par\" Lockstep\n"}});
  const ArrayFile file = read_safetensors(folder / "all");
  ASSERT_EQ(file.arrays.size(), arrays.size());
  for (const NamedArray& written : arrays) {
    const NamedArray* read = file.find(written.name);
    ASSERT_NE(read, nullptr) << written.name;
    EXPECT_EQ(read->dtype, written.dtype) << written.name;
    EXPECT_EQ(read->shape, written.shape) << written.name;
    EXPECT_EQ(read->bytes, written.bytes) << written.name;
  }
  EXPECT_EQ(file.find("pixel"), nullptr);
  EXPECT_EQ(file.metadata, (Metadata{{"step", "20"}, {"écrit", "\"par\" Lockstep\n"}}));
}

TEST(Safetensors, KeepsTheGivenOrderAmongArraysOfOneWidth) {
  const TempFolder folder;
  const std::vector<NamedArray> arrays = {
      array_of<float>("2.weight", DType::float32, {1}, {2}),
      array_of<float>("0.weight", DType::float32, {1}, {0}),
      array_of<float>("10.weight", DType::float32, {1}, {10}),
  };
  write_safetensors(folder / "model", arrays);
  const ArrayFile file = read_safetensors(folder / "model");
  ASSERT_EQ(file.arrays.size(), 3u);
  EXPECT_EQ(file.arrays[0].name, "2.weight");
  EXPECT_EQ(file.arrays[1].name, "0.weight");
  EXPECT_EQ(file.arrays[2].name, "10.weight");
}

TEST(Safetensors, AlignsEveryArrayToItsElements) {
  const TempFolder folder;
  write_safetensors(folder / "all", one_of_each_type());
  const std::string bytes = read_text(folder / "all");
  std::uint64_t header_length = 0;
  std::memcpy(&header_length, bytes.data(), 8);
  std::size_t offset = 8 + header_length;
  for (const NamedArray& array : read_safetensors(folder / "all").arrays) {
    EXPECT_EQ(offset % size_of(array.dtype), 0u) << array.name;
    offset += array.bytes.size();
  }
  EXPECT_EQ(offset, bytes.size());
}

TEST(Safetensors, WritesTheDocumentedBytes) {
  const TempFolder folder;
  write_safetensors(folder / "one",
                    std::vector{array_of<std::uint8_t>("a", DType::uint8, {2}, {65, 66})});
  std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_text(folder / "one"), file_of(header, "AB"));
}

TEST(Safetensors, ReadsAFileWithoutArrays) {
  const TempFolder folder;
  write_text(folder / "none", file_of("{}"));
  EXPECT_TRUE(read_safetensors(folder / "none").arrays.empty());
}

TEST(Safetensors, RefusesToWriteWhatItCouldNotReadBack) {
  const TempFolder folder;
  const auto write = [&](std::vector<NamedArray> arrays) {
    write_safetensors(folder / "bad", arrays);
  };
  const auto byte = array_of<std::uint8_t>("a", DType::uint8, {1}, {1});
  auto renamed = byte;
  renamed.name = "__metadata__";
  auto not_utf8 = byte;
  not_utf8.name = "\xff\xfe";
  auto short_of_bytes = byte;
  short_of_bytes.shape = {2};
  expect_error(ErrorCode::Usage, "two arrays are called 'a'", [&] { write({byte, byte}); });
  expect_error(ErrorCode::Usage, "__metadata__", [&] { write({renamed}); });
  expect_error(ErrorCode::Usage, "UTF-8", [&] { write({not_utf8}); });
  expect_error(ErrorCode::Shape, "needs 2 bytes, found 1", [&] { write({short_of_bytes}); });
  EXPECT_FALSE(std::filesystem::exists(folder / "bad"));
}

TEST(Safetensors, NamesTheMissingFile) {
  const TempFolder folder;
  expect_error(ErrorCode::Io, "missing.safetensors",
               [&] { read_safetensors(folder / "missing.safetensors"); });
  expect_error(ErrorCode::Io, folder.path().string(), [&] { read_safetensors(folder.path()); });
}

TEST(Safetensors, FailsAtEveryTruncation) {
  const TempFolder folder;
  write_safetensors(folder / "whole", one_of_each_type());
  const std::string bytes = read_text(folder / "whole");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write_text(folder / "cut", bytes.substr(0, length));
    expect_error(ErrorCode::Io, "cut", [&] { read_safetensors(folder / "cut"); });
  }
}

TEST(Safetensors, FailsOnAHeaderLengthBeyondTheFile) {
  const TempFolder folder;
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    std::string bytes = file_of("{}");
    std::memcpy(bytes.data(), &length, 8);
    write_text(folder / "long", bytes);
    expect_error(ErrorCode::Io, "claims a header", [&] { read_safetensors(folder / "long"); });
  }
}

// Interoperation with the Python package, where it is installed.
TEST(Safetensors, PythonReadsAndWritesTheSameFiles) {
  if (std::system("python3 -c 'import safetensors.numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python's package safetensors is not installed";
  }
  const TempFolder folder;
  auto arrays = one_of_each_type();
  std::erase_if(arrays, [](const auto& array) { return array.dtype == DType::bfloat16; });
  write_safetensors(folder / "ours", arrays, {{"step", "20"}});
  write_text(folder / "copy.py",
             "import sys\n"
             "from safetensors import safe_open\n"
             "from safetensors.numpy import save_file\n"
             "f = safe_open(sys.argv[1], 'np')\n"
             "arrays = {name: f.get_tensor(name) for name in f.keys()}\n"
             "assert arrays['0.weight'][0, 1] == -1 and arrays['labels'][1] == 7\n"
             "save_file(arrays, sys.argv[2], f.metadata())\n");
  const std::string command = fmt::format("python3 '{}' '{}' '{}'", (folder / "copy.py").string(),
                                          (folder / "ours").string(), (folder / "theirs").string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  const ArrayFile copy = read_safetensors(folder / "theirs");
  ASSERT_EQ(copy.arrays.size(), arrays.size());
  for (const NamedArray& array : arrays) {
    ASSERT_NE(copy.find(array.name), nullptr) << array.name;
    EXPECT_EQ(copy.find(array.name)->bytes, array.bytes) << array.name;
    EXPECT_EQ(copy.find(array.name)->shape, array.shape) << array.name;
  }
  EXPECT_EQ(copy.metadata, (Metadata{{"step", "20"}}));
}

}  // namespace
}  // namespace lockstep::checkpoint
