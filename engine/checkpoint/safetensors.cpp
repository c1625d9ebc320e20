#include "engine/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/log.h"
#include "engine/core/text.h"

namespace lockstep::checkpoint {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kOperation = "safetensors";
constexpr std::string_view kMetadataKey = "__metadata__";
// The reference implementation's limit: a longer header is taken for a corrupt file.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

// --- files that PyTorch's torch.save wrote: Python objects, which only Python can read ---

// True for a zip archive that begins with "NAME/data.pkl", which torch.save writes since PyTorch
// 1.6, and for the pickle of protocol 2 that it wrote before, with a magic number of ten bytes.
bool is_torch_file(std::string_view start) {
  constexpr std::string_view kLegacy = "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.";
  constexpr std::string_view kZipEntry = "PK\x03\x04";
  constexpr std::size_t kZipNameAt = 30;  // after 26 bytes and the lengths of name and extra
  if (start.starts_with(kLegacy)) return true;
  if (!start.starts_with(kZipEntry) || start.size() < kZipNameAt) return false;
  const std::size_t length =
      static_cast<unsigned char>(start[26]) | static_cast<unsigned char>(start[27]) << 8;
  return start.substr(kZipNameAt, length).ends_with("/data.pkl");
}

// The shell command that converts such a file. weights_only: nothing in the file is executed.
// clone: tied weights share memory, which safetensors refuses.
std::string torch_file_conversion(const std::filesystem::path& path) {
  std::filesystem::path converted = path;
  converted.replace_extension(".safetensors");
  return fmt::format(
      "python3 -c \"import sys, torch, safetensors.torch as st; s = torch.load(sys.argv[1], "
      "map_location='cpu', weights_only=True); s = s.get('model_state_dict', s.get('state_dict', "
      "s)); st.save_file({{k: v.clone().contiguous() for k, v in s.items() if "
      "torch.is_tensor(v)}}, "
      "sys.argv[2], {{'format': 'pt'}})\" {} {}",
      shell_quoted(path.string()), shell_quoted(converted.string()));
}

// Explains how to convert the most common other file of weights.
void require_no_torch_file(InputFile& file, const std::filesystem::path& path) {
  std::array<char, 128> start{};
  const std::size_t num_read = file.read(std::as_writable_bytes(std::span(start)));
  file.rewind();
  require(!is_torch_file({start.data(), num_read}), ErrorCode::Io, kOperation,
          "'{}' was written by PyTorch's torch.save, whose files only Python can read; convert it "
          "once: {}",
          file.name(), torch_file_conversion(path));
}

// --- reading the header ---

// One array's entry: its bytes are [begin, end) of the data section.
struct HeaderEntry {
  std::string name;
  std::optional<DType> dtype;  // none: a type that Lockstep lacks
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // sorted by begin: the order of the bytes
  Metadata metadata;
};

// The format's names of element types.
constexpr std::array<std::pair<DType, std::string_view>, 7> kDTypeNames = {{
    {DType::float64, "F64"},
    {DType::float32, "F32"},
    {DType::bfloat16, "BF16"},
    {DType::float16, "F16"},
    {DType::int64, "I64"},
    {DType::int32, "I32"},
    {DType::uint8, "U8"},
}};

// Types that Lockstep lacks, with the bytes of an element. Such arrays are left out.
constexpr std::array<std::pair<std::string_view, std::size_t>, 8> kOtherTypes = {{
    {"BOOL", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"I16", 2},
    {"U16", 2},
    {"U32", 4},
    {"U64", 8},
}};

struct ElementType {
  std::optional<DType> dtype;
  std::size_t num_bytes = 0;
};

template <typename... Args>
void expect(bool condition, const std::string& file, fmt::format_string<Args...> format,
            Args&&... args) {
  if (condition) [[likely]]
    return;
  fail(ErrorCode::Io, kOperation, "'{}': {}", file,
       fmt::format(format, std::forward<Args>(args)...));
}

Metadata metadata_of(const Json& object, const std::string& file) {
  Metadata metadata;
  if (object.is_null()) return metadata;
  expect(object.is_object(), file, "{} is not an object", kMetadataKey);
  for (const auto& [key, text] : object.items()) {
    expect(text.is_string(), file, "{} may hold only strings, but '{}' is not one", kMetadataKey,
           shown(key));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

std::vector<std::size_t> read_sizes(const Json& entry, const char* field, const std::string& name,
                                    const std::string& file) {
  const Json& list = entry.at(field);
  expect(list.is_array(), file, "the {} of '{}' is not a list", field, shown(name));
  const bool is_whole =
      std::ranges::all_of(list, [](const Json& size) { return size.is_number_unsigned(); });
  expect(is_whole, file, "the {} of '{}' must hold whole numbers that are not negative", field,
         shown(name));
  return list.get<std::vector<std::size_t>>();
}

ElementType read_type(const Json& entry, const std::string& name, const std::string& file) {
  const Json& text = entry.at("dtype");
  expect(text.is_string(), file, "the dtype of '{}' is not a string", shown(name));
  for (const auto& [dtype, dtype_name] : kDTypeNames) {
    if (text == dtype_name) return {dtype, size_of(dtype)};
  }
  for (const auto& [type_name, num_bytes] : kOtherTypes) {
    if (text == type_name) return {std::nullopt, num_bytes};
  }
  fail(ErrorCode::Io, kOperation, "'{}': '{}' has elements of the unknown type '{}'", file,
       shown(name), shown(text.get_ref<const std::string&>()));
}

HeaderEntry read_entry(const std::string& name, const Json& entry, const std::string& file) {
  expect(entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
             entry.contains("shape") && entry.contains("data_offsets"),
         file, "the entry of '{}' must hold dtype, shape and data_offsets, nothing else",
         shown(name));
  const ElementType type = read_type(entry, name, file);
  const std::vector<std::size_t> sizes = read_sizes(entry, "shape", name, file);
  const std::vector<std::size_t> offsets = read_sizes(entry, "data_offsets", name, file);
  expect(sizes.size() <= Shape::kMaxDims, file, "'{}' has {} dimensions; up to {} can be read",
         shown(name), sizes.size(), Shape::kMaxDims);
  expect(offsets.size() == 2 && offsets[0] <= offsets[1], file,
         "the data_offsets of '{}' must be a begin and an end", shown(name));
  auto num_bytes = product_of_nonzero(sizes, type.num_bytes);  // nothing: more than can be counted
  if (num_bytes && std::ranges::count(sizes, 0U) > 0) num_bytes = 0;
  expect(num_bytes == offsets[1] - offsets[0], file,
         "the shape [{}] of '{}' does not fit its {} bytes of {}", fmt::join(sizes, ", "),
         shown(name), offsets[1] - offsets[0], entry.at("dtype").get_ref<const std::string&>());
  return {name, type.dtype, Shape(sizes), offsets[0], offsets[1]};
}

// Reads entry after entry and keeps no JSON, so that memory and time grow only with the text, not
// with its nesting.
Header parse_entries(std::string_view text, const std::string& file) {
  constexpr int kDeepest = 4;  // deeper values are dropped: they are an error anyway
  Header header;
  std::string name;
  std::array<std::unordered_set<std::string>, 2> names;  // entries' names; one entry's fields
  const auto on_event = [&](int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::key && depth <= 2) {
      const auto& key = value.get_ref<const std::string&>();
      expect(names[static_cast<std::size_t>(depth - 1)].insert(key).second, file,
             "'{}' appears twice in the header", shown(key));
      if (depth == 1) name = key;
    }
    if (depth != 1 || event == Event::key) return depth <= kDeepest;
    if (event == Event::object_start) {
      names[1].clear();
      return true;
    }
    if (name == kMetadataKey) {
      header.metadata = metadata_of(value, file);
    } else {
      header.entries.push_back(read_entry(name, value, file));
    }
    return false;
  };
  try {
    [[maybe_unused]] const Json nothing = Json::parse(text, on_event);
  } catch (const Json::parse_error& error) {
    fail(ErrorCode::Io, kOperation, "'{}': the header is not valid JSON (byte {})", file,
         error.byte);
  } catch (const Json::out_of_range&) {
    fail(ErrorCode::Io, kOperation, "'{}': the header has a number that is too large", file);
  }
  return header;
}

// The arrays' bytes must cover the data without a gap or an overlap. REQUIRES: by begin.
void require_seamless(const std::vector<HeaderEntry>& entries, std::uint64_t num_data_bytes,
                      const std::string& file) {
  std::uint64_t expected_begin = 0;
  for (const HeaderEntry& entry : entries) {
    expect(entry.begin == expected_begin, file,
           "the bytes of '{}' begin at {}, but those before it end at {}", shown(entry.name),
           entry.begin, expected_begin);
    expected_begin = entry.end;
  }
  expect(expected_begin == num_data_bytes, file,
         "the header describes {} bytes of data, the file has {}; it is truncated or corrupt",
         expected_begin, num_data_bytes);
}

// Entries must cover the data section without a gap or an overlap, and each must be as long as its
// shape says.
Header read_header(InputFile& file) {
  require(file.num_bytes() >= 8, ErrorCode::Io, kOperation,
          "'{}' has {} bytes: too short for a safetensors file", file.name(), file.num_bytes());
  std::array<std::byte, 8> length_bytes{};
  file.read_exactly(length_bytes);
  const auto length = std::bit_cast<std::uint64_t>(length_bytes);
  const bool fits = length <= kMaxHeaderBytes && length <= file.num_bytes() - 8;
  require(
      fits, ErrorCode::Io, kOperation,
      "'{}' claims a header of {} bytes in a file of {}: it is truncated or not a safetensors file",
      file.name(), length, file.num_bytes());
  std::string json(length, '\0');
  file.read_exactly(std::as_writable_bytes(std::span(json)));
  expect(json.starts_with('{'), file.name(), "the header is not a JSON object");
  // The parser would stop at a NUL.
  const std::size_t nul = json.find('\0');
  expect(nul == std::string::npos, file.name(), "the header is not valid JSON (a NUL at byte {})",
         nul);
  Header header = parse_entries(json, file.name());
  std::ranges::sort(header.entries, {},
                    [](const HeaderEntry& entry) { return std::pair(entry.begin, entry.end); });
  require_seamless(header.entries, file.num_bytes() - 8 - length, file.name());
  return header;
}

}  // namespace

const NamedArray* ArrayFile::find(std::string_view name) const {
  const auto found = std::ranges::find(arrays, name, &NamedArray::name);
  return found == arrays.end() ? nullptr : &*found;
}

namespace {

ArrayFile read_arrays(InputFile& file, Header header) {
  ArrayFile result{{}, std::move(header.metadata)};
  result.arrays.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    std::vector<std::byte> bytes(entry.end - entry.begin);
    file.read_exactly(bytes);
    if (entry.dtype) {
      result.arrays.push_back({std::move(entry.name), *entry.dtype, entry.shape, std::move(bytes)});
    } else {
      log_warning("[{}] '{}': left out '{}': Lockstep does not have its element type", kOperation,
                  file.name(), shown(entry.name));
    }
  }
  return result;
}

// --- an index, which is JSON: {"metadata": {...}, "weight_map": {"name": "file", ...}} ---

// True for text that begins with {, which as a length would be longer than any file.
bool is_json(InputFile& file) {
  std::array<char, 8> start{};
  const std::size_t num_read = file.read(std::as_writable_bytes(std::span(start)));
  file.rewind();
  return start[0] == '{' &&
         (num_read < start.size() || std::bit_cast<std::uint64_t>(start) > kMaxHeaderBytes);
}

constexpr std::uint64_t kMaxIndexBytes = 1 << 24;

// The names in each file of the index.
using WeightMap = std::map<std::string, std::set<std::string>>;

WeightMap read_weight_map(InputFile& file) {
  expect(file.num_bytes() <= kMaxIndexBytes, file.name(), "{} bytes are too many for an index",
         file.num_bytes());
  std::string text(file.num_bytes(), '\0');
  file.read_exactly(std::as_writable_bytes(std::span(text)));
  // Deeper values are dropped: an index has none, and their memory would grow with the nesting.
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) { return depth <= 3; };
  const Json json = Json::parse(text, is_shallow, /*allow_exceptions=*/false);
  expect(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
         file.name(),
         "it is JSON text, neither a safetensors file nor an index of several with a weight_map");
  WeightMap names;
  for (const auto& [name, value] : json["weight_map"].items()) {
    const std::string part = value.is_string() ? value.get<std::string>() : "";
    expect(!part.empty() && std::filesystem::path(part).filename() == part, file.name(),
           "weight_map must name a file beside it for '{}'", shown(name));
    names[part].insert(name);
  }
  expect(!names.empty(), file.name(), "its weight_map is empty");
  return names;
}

InputFile open_part(const std::filesystem::path& path, const std::string& index) {
  require(std::filesystem::exists(path), ErrorCode::Io, kOperation,
          "there is no '{}', which '{}' lists; put all files of the checkpoint into one folder",
          path.string(), index);
  InputFile file(path, kOperation);
  require_no_torch_file(file, path);
  return file;
}

void require_all_of(const std::set<std::string>& names, const std::set<std::string>& others,
                    const std::string& file, const std::string& other) {
  for (const std::string& name : names) {
    expect(others.contains(name), file,
           "it names '{}', and '{}' does not: one of them is of another checkpoint", shown(name),
           other);
  }
}

ArrayFile read_part(const std::filesystem::path& path, const std::set<std::string>& names,
                    const std::string& index) {
  InputFile file = open_part(path, index);
  Header header = read_header(file);
  std::set<std::string> found;
  for (const HeaderEntry& entry : header.entries) found.insert(entry.name);
  require_all_of(names, found, index, file.name());
  require_all_of(found, names, file.name(), index);
  return read_arrays(file, std::move(header));
}

}  // namespace

ArrayFile read_safetensors(const std::filesystem::path& path) {
  InputFile file(path, kOperation);
  require_no_torch_file(file, path);
  if (!is_json(file)) return read_arrays(file, read_header(file));
  ArrayFile all;
  for (const auto& [part, names] : read_weight_map(file)) {
    ArrayFile some = read_part(path.parent_path() / part, names, file.name());
    all.metadata.merge(some.metadata);
    std::ranges::move(some.arrays, std::back_inserter(all.arrays));
  }
  return all;
}

Metadata read_metadata(const std::filesystem::path& path) {
  InputFile file(path, kOperation);
  require_no_torch_file(file, path);
  if (!is_json(file)) return read_header(file).metadata;
  Metadata metadata;
  for (const auto& [part, names] : read_weight_map(file)) {
    InputFile one = open_part(path.parent_path() / part, file.name());
    metadata.merge(read_header(one).metadata);
  }
  return metadata;
}

// --- writing ---

namespace {

void check_arrays(std::span<const NamedArrayView> arrays) {
  std::set<std::string_view> names;
  for (const NamedArrayView& array : arrays) {
    require(array.name != kMetadataKey, ErrorCode::Usage, kOperation,
            "an array cannot be called {}: the format keeps that name", kMetadataKey);
    require(names.insert(array.name).second, ErrorCode::Usage, kOperation,
            "two arrays are called '{}'", array.name);
    const std::size_t num_bytes = array.shape.num_elements() * size_of(array.dtype);
    require(array.bytes.size() == num_bytes, ErrorCode::Shape, kOperation,
            "'{}' {} of {} needs {} bytes, found {}", array.name, to_string(array.shape),
            to_string(array.dtype), num_bytes, array.bytes.size());
  }
}

std::string json_text(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    fail(ErrorCode::Usage, kOperation, "names and metadata must be UTF-8");
  }
}

// The header with its length before it, padded with spaces so that the data is aligned.
std::string encode_header(std::span<const NamedArrayView> arrays, const Metadata& metadata) {
  std::string json = "{";
  const auto add = [](std::string& object, std::string_view key, std::string_view value) {
    object += fmt::format("{}{}:{}", object.back() == '{' ? "" : ",", json_text(key), value);
  };
  if (!metadata.empty()) {
    std::string texts = "{";
    for (const auto& [key, text] : metadata) add(texts, key, json_text(text));
    add(json, kMetadataKey, texts + "}");
  }
  std::size_t offset = 0;
  for (const NamedArrayView& array : arrays) {
    const auto* const dtype =
        std::ranges::find(kDTypeNames, array.dtype, &std::pair<DType, std::string_view>::first);
    const std::size_t end = offset + array.bytes.size();
    add(json, array.name,
        fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dtype->second,
                    fmt::join(array.shape.sizes(), ","), offset, end));
    offset = end;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  require(json.size() <= kMaxHeaderBytes, ErrorCode::Usage, kOperation,
          "the header would take {} bytes; the format allows {}", json.size(), kMaxHeaderBytes);
  const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{json.size()});
  return std::string(length.begin(), length.end()) + json;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArrayView> arrays,
                       const Metadata& metadata) {
  check_arrays(arrays);
  std::vector<NamedArrayView> ordered(arrays.begin(), arrays.end());
  std::ranges::stable_sort(ordered, std::greater{},
                           [](const NamedArrayView& array) { return size_of(array.dtype); });
  const std::string header = encode_header(ordered, metadata);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(header)));
  for (const NamedArrayView& array : ordered) file.write(array.bytes);
  file.commit();
}

}  // namespace lockstep::checkpoint
