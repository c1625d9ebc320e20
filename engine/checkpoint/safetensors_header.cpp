#include "engine/checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"
#include "engine/core/text.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOperation = "safetensors";

constexpr std::array<std::pair<DType, std::string_view>, 7> kDTypeNames = {{
    {DType::float64, "F64"},
    {DType::float32, "F32"},
    {DType::bfloat16, "BF16"},
    {DType::float16, "F16"},
    {DType::int64, "I64"},
    {DType::int32, "I32"},
    {DType::uint8, "U8"},
}};

template <typename... Args>
void expect(bool condition, const std::string& file, fmt::format_string<Args...> format,
            Args&&... args) {
  if (condition) [[likely]]
    return;
  fail(ErrorCode::Io, kOperation, "'{}': {}", file,
       fmt::format(format, std::forward<Args>(args)...));
}

Metadata read_metadata(const Json& object, const std::string& file) {
  expect(object.is_object(), file, "{} is not an object", kMetadataKey);
  Metadata metadata;
  for (const auto& [key, text] : object.items()) {
    expect(text.is_string(), file, "{} may hold texts only, but '{}' is none", kMetadataKey,
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

DType read_dtype(const Json& entry, const std::string& name, const std::string& file) {
  const Json& text = entry.at("dtype");
  expect(text.is_string(), file, "the dtype of '{}' is not a string", shown(name));
  for (const auto& [dtype, dtype_name] : kDTypeNames) {
    if (text == dtype_name) return dtype;
  }
  fail(ErrorCode::Io, kOperation,
       "'{}': '{}' has elements of type '{}'; F64, F32, BF16, F16, I64, I32 and U8 can be read",
       file, shown(name), shown(text.get_ref<const std::string&>()));
}

HeaderEntry read_entry(const std::string& name, const Json& entry, const std::string& file) {
  expect(entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
             entry.contains("shape") && entry.contains("data_offsets"),
         file, "the entry of '{}' must hold dtype, shape and data_offsets, nothing else",
         shown(name));
  const DType dtype = read_dtype(entry, name, file);
  const std::vector<std::size_t> sizes = read_sizes(entry, "shape", name, file);
  const std::vector<std::size_t> offsets = read_sizes(entry, "data_offsets", name, file);
  expect(sizes.size() <= Shape::kMaxDims, file, "'{}' has {} dimensions; up to {} can be read",
         shown(name), sizes.size(), Shape::kMaxDims);
  expect(offsets.size() == 2 && offsets[0] <= offsets[1], file,
         "the data_offsets of '{}' must be a begin and an end", shown(name));
  auto num_bytes = product_of_nonzero(sizes, size_of(dtype));  // nothing: more than can be counted
  if (num_bytes && std::ranges::count(sizes, 0U) > 0) num_bytes = 0;
  expect(num_bytes == offsets[1] - offsets[0], file,
         "the shape [{}] of '{}' does not fit its {} bytes of {}", fmt::join(sizes, ", "),
         shown(name), offsets[1] - offsets[0], to_string(dtype));
  return {name, dtype, Shape(sizes), offsets[0], offsets[1]};
}

// Reads entry after entry and keeps none of their JSON, so that memory and time grow with the text
// alone, however it is nested.
Header parse_entries(std::string_view text, const std::string& file) {
  constexpr int kDeepest = 4;  // whatever is nested deeper is dropped: it is an error anyway
  Header header;
  std::string name;
  std::array<std::unordered_set<std::string>, 2> names;  // of entries; of the fields of one entry
  const auto on_event = [&](int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::key && depth <= 2) {
      const auto& key = value.get_ref<const std::string&>();
      expect(names[static_cast<std::size_t>(depth - 1)].insert(key).second, file,
             "'{}' stands twice in the header", shown(key));
      if (depth == 1) name = key;
    }
    if (depth != 1 || event == Event::key) return depth <= kDeepest;
    if (event == Event::object_start) {
      names[1].clear();
      return true;
    }
    if (name == kMetadataKey) {
      header.metadata = read_metadata(value, file);
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

std::string json_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(ErrorCode::Usage, kOperation, "names and metadata must be UTF-8");
  }
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  for (const auto& [candidate, name] : kDTypeNames) {
    if (candidate == dtype) return name;
  }
  fail(ErrorCode::DType, kOperation, "the format has no element type {}", to_string(dtype));
}

Header parse_header(std::string_view json, std::uint64_t num_data_bytes, const std::string& file) {
  expect(json.starts_with('{'), file, "the header is not a JSON object");
  // The parser takes a NUL for the end of the text.
  const std::size_t nul = json.find('\0');
  expect(nul == std::string_view::npos, file, "the header is not valid JSON (a NUL at byte {})",
         nul);
  Header header = parse_entries(json, file);
  std::ranges::sort(header.entries, {},
                    [](const HeaderEntry& entry) { return std::pair(entry.begin, entry.end); });
  require_seamless(header.entries, num_data_bytes, file);
  return header;
}

std::string header_to_json(const Header& header) {
  std::string json = "{";
  const auto add = [&json](std::string_view key, std::string_view value) {
    json += fmt::format("{}{}:{}", json.back() == '{' ? "" : ",", json_text(key), value);
  };
  if (!header.metadata.empty()) {
    std::string texts;
    for (const auto& [key, text] : header.metadata) {
      texts += fmt::format("{}{}:{}", texts.empty() ? "" : ",", json_text(key), json_text(text));
    }
    add(kMetadataKey, "{" + texts + "}");
  }
  for (const HeaderEntry& entry : header.entries) {
    add(entry.name, fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                safetensors_dtype(entry.dtype), fmt::join(entry.shape.sizes(), ","),
                                entry.begin, entry.end));
  }
  return json + "}";
}

}  // namespace lockstep::checkpoint
