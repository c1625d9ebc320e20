#include "engine/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

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

void write_arrays(const std::filesystem::path& path, const std::vector<NamedArray>& arrays,
                  const Metadata& metadata = {}) {
  std::vector<NamedArrayView> views;
  for (const NamedArray& array : arrays) {
    views.push_back({array.name, array.dtype, array.shape, array.bytes});
  }
  write_safetensors(path, views, metadata);
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
  write_arrays(folder / "all", arrays, {{"step", "20"}, {"écrit", "\"par\" Lockstep\n"}});
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

TEST(Safetensors, AlignsEveryArrayToItsElements) {
  const TempFolder folder;
  write_arrays(folder / "all", one_of_each_type());
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
  write_arrays(folder / "one",
               std::vector{array_of<std::uint8_t>("a", DType::uint8, {2}, {65, 66})});
  std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_text(folder / "one"), file_of(header, "AB"));
}

TEST(Safetensors, RefusesWhatItCouldNotReadBack) {
  const TempFolder folder;
  const auto write = [&](std::vector<NamedArray> arrays) { write_arrays(folder / "bad", arrays); };
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
  write_arrays(folder / "whole", one_of_each_type());
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
  write_arrays(folder / "ours", arrays, {{"step", "20"}});
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

// --- headers, and files that are none ---

// Reads a file of this header and so many bytes of data.
ArrayFile read_header(std::string_view header, std::size_t num_data_bytes) {
  const TempFolder folder;
  write_text(folder / "model.safetensors", file_of(header, std::string(num_data_bytes, '\0')));
  return read_safetensors(folder / "model.safetensors");
}

struct BadHeader {
  const char* json;
  std::size_t num_data_bytes;
  const char* words;  // in the message
};

TEST(Safetensors, BadHeadersAreRefusedWithTheirReason) {
  const BadHeader mistakes[] = {
      {"", 0, "not a JSON object"},
      {R"({"a":)", 0, "not valid JSON"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {R"({"a":[[[[[[[[1]]]]]]]]})", 0, "the entry of 'a' must hold"},
      {R"({"__metadata__":{"a":{"b":{}}}})", 0, "may hold only strings, but 'a' is not one"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' appears twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                      "a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "'a' appears twice"},
      {R"({"a":1})", 0, "must hold dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "must hold dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"F9","shape":[1],"data_offsets":[0,1]}})", 1,
       "elements of the unknown type 'F9'"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
       "shape of 'a' must hold whole numbers"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
       "'a' has 7 dimensions"},
      {R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20,
       "shape [2, 3] of 'a' does not fit its 20 bytes of F32"},
      {R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "does not fit its 0 bytes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "must be a begin and an end"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                      "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "the bytes of 'b' begin at 2, but those before it end at 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                      "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "the bytes of 'b' begin at 1"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3,
       "describes 4 bytes of data, the file has 3"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5,
       "describes 4 bytes of data, the file has 5"},
      {R"({"__metadata__":[]})", 0, "is not an object"},
      {R"({"__metadata__":{"step":1}})", 0, "may hold only strings"},
  };
  for (const BadHeader& bad : mistakes) {
    for (const char* words : {bad.words, "model.safetensors'"}) {
      expect_error(ErrorCode::Io, words, [&] { read_header(bad.json, bad.num_data_bytes); });
    }
  }
}

TEST(Safetensors, AcceptsPaddingAndAnyOrderOfEntries) {
  const ArrayFile file = read_header(R"({"b":{"shape":[2],"dtype":"U8","data_offsets":[4,6]},
      "a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}    )",
                                     6);
  ASSERT_EQ(file.arrays.size(), 2u);
  EXPECT_EQ(file.arrays[0].name, "a");
  EXPECT_EQ(file.arrays[0].shape, Shape{});
  EXPECT_EQ(file.arrays[1].name, "b");
}

TEST(Safetensors, RefusesWhatFollowsANul) {
  for (const std::string_view text : {std::string_view("{}\0", 3), std::string_view("{}\0{}", 5)}) {
    expect_error(ErrorCode::Io, "a NUL at byte 2", [&] { read_header(text, 0); });
  }
}

TEST(Safetensors, LeavesOutArraysOfTypesThatItLacks) {
  const ArrayFile file = read_header(
      R"({"__metadata__":null,"mask":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},)"
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
      3);
  ASSERT_EQ(file.arrays.size(), 1u);
  EXPECT_EQ(file.arrays[0].name, "a");
}

// Writes a file of one array, a number.
void write_number(const std::filesystem::path& path, const std::string& name, float number) {
  const std::array<float, 1> values = {number};
  const NamedArrayView array{name, DType::float32, {1}, std::as_bytes(std::span(values))};
  write_safetensors(path, {&array, 1}, {{"of " + name, "text"}});
}

TEST(Safetensors, AnIndexReadsTheFilesThatItNames) {
  const TempFolder folder;
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  write_text(index, R"({"metadata": {"total_size": 8},
      "weight_map": {"b": "model-1.safetensors", "a": "model-2.safetensors"}})");
  expect_error(ErrorCode::Io, "model-1.safetensors', which", [&] { read_safetensors(index); });
  write_number(folder / "model-1.safetensors", "b", 7);
  write_number(folder / "model-2.safetensors", "a", 9);
  const ArrayFile file = read_safetensors(index);
  ASSERT_EQ(file.arrays.size(), 2u);
  ASSERT_NE(file.find("a"), nullptr);
  float value = 0;
  std::memcpy(&value, file.find("a")->bytes.data(), sizeof value);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(read_metadata(index), (Metadata{{"of a", "text"}, {"of b", "text"}}));
}

TEST(Safetensors, AnIndexOfOtherArraysIsRefused) {
  const TempFolder folder;
  const std::filesystem::path index = folder / "index.json";
  write_number(folder / "one.safetensors", "a", 1);
  const auto read = [&](const std::string& json) {
    write_text(index, json);
    read_safetensors(index);
  };
  expect_error(ErrorCode::Io, "index.json': it names 'b', and", [&] {
    read(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})");
  });
  write_number(folder / "two.safetensors", "b", 1);
  expect_error(ErrorCode::Io, "index.json': it names 'a', and",
               [&] { read(R"({"weight_map": {"a": "two.safetensors"}})"); });
  const std::array<float, 1> values = {1};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  const std::array<NamedArrayView, 2> both = {NamedArrayView{"a", DType::float32, {1}, bytes},
                                              NamedArrayView{"b", DType::float32, {1}, bytes}};
  write_safetensors(folder / "both.safetensors", both);
  expect_error(ErrorCode::Io, "both.safetensors': it names 'b', and",
               [&] { read(R"({"weight_map": {"a": "both.safetensors"}})"); });
  for (const char* json :
       {R"({"weight_map": {"a": "../one.safetensors"}})", R"({"weight_map": {"a": 1}})"}) {
    expect_error(ErrorCode::Io, "weight_map must name a file beside it for 'a'",
                 [&] { read(json); });
  }
  for (const char* json : {R"({"a": 1})", "{", R"({"weight_map": [1]})", R"({"weight_map")"}) {
    expect_error(ErrorCode::Io, "neither a safetensors file nor an index", [&] { read(json); });
  }
  expect_error(ErrorCode::Io, "its weight_map is empty", [&] { read(R"({"weight_map": {}})"); });
  // An index of an index is none.
  write_text(folder / "one.safetensors", R"({"weight_map": {"a": "one.safetensors"}})");
  expect_error(ErrorCode::Io, "not a safetensors file",
               [&] { read(R"({"weight_map": {"a": "one.safetensors"}})"); });
}

// Files as PyTorch 2.9 and 1.5 write them, by their first bytes: the first entry of a zip archive
// has no compression, a name, and padding up to 64 bytes.
std::string zip(const std::string& name) {
  std::string start("PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 26);
  start += static_cast<char>(name.size());
  return start + std::string("\0\x12\0", 3) + name + "FB\x0e\0ZZZZZZZZZZZZZZ\x80\x02}q\0";
}

const std::string kLegacy("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", 22);

TEST(Safetensors, AFileOfTorchSaveIsNamed) {
  const TempFolder folder;
  for (const std::string& content : {zip("model/data.pkl"), zip("archive/data.pkl"), kLegacy}) {
    write_text(folder / "it's my model.pt", content);
    const auto read = [&] { read_safetensors(folder / "it's my model.pt"); };
    expect_error(ErrorCode::Io,
                 "my model.pt' was written by PyTorch's torch.save, whose files only", read);
    expect_error(ErrorCode::Io, "it'\\''s my model.safetensors'", read);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
