#include "engine/checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::checkpoint {
namespace {

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
  if (condition) return;
  fail(ErrorCode::Io, kOperation, "'{}': {}", file,
       fmt::format(format, std::forward<Args>(args)...));
}

// nlohmann::json keeps the last of two equal keys; a file with such a pair is ambiguous. Nesting is
// bounded too: a header has three levels.
class KeyChecker {
 public:
  explicit KeyChecker(const std::string& file) : file_(file) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    expect(depth <= 3, file_, "the header is nested too deeply");
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      expect(keys_.back().insert(key).second, file_, "'{}' stands twice in the header", key);
    }
    return true;
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> keys_;
};

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  expect(text.starts_with('{'), file, "the header is not a JSON object");
  try {
    return nlohmann::json::parse(text, KeyChecker(file));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::Io, kOperation, "'{}': the header is not valid JSON (byte {})", file,
         dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr
             ? static_cast<const nlohmann::json::parse_error&>(error).byte
             : 0);
  }
}

DType parse_safetensors_dtype(const nlohmann::json& value, const std::string& name,
                              const std::string& file) {
  expect(value.is_string(), file, "the dtype of '{}' is not a string", name);
  const auto& text = value.get_ref<const std::string&>();
  for (const auto& [dtype, dtype_name] : kDTypeNames) {
    if (text == dtype_name) return dtype;
  }
  fail(ErrorCode::Io, kOperation,
       "'{}': '{}' has elements of type '{}'; F64, F32, BF16, F16, I64, I32 and U8 can be read",
       file, name, text);
}

std::vector<std::uint64_t> parse_sizes(const nlohmann::json& value, std::string_view what,
                                       const std::string& name, const std::string& file) {
  expect(value.is_array(), file, "the {} of '{}' is not a list", what, name);
  std::vector<std::uint64_t> sizes;
  for (const auto& element : value) {
    expect(element.is_number_unsigned(), file,
           "the {} of '{}' must hold whole numbers that are not negative", what, name);
    sizes.push_back(element.get<std::uint64_t>());
  }
  return sizes;
}

// Bytes of an array, or nothing where the product does not fit 64 bits.
std::optional<std::uint64_t> num_bytes_of(const std::vector<std::uint64_t>& sizes, DType dtype) {
  std::uint64_t num_bytes = size_of(dtype);
  for (const std::uint64_t size : sizes) {
    if (__builtin_mul_overflow(num_bytes, size, &num_bytes)) return std::nullopt;
  }
  return num_bytes;
}

HeaderEntry parse_entry(const std::string& name, const nlohmann::json& value,
                        const std::string& file) {
  expect(value.is_object() && value.size() == 3 && value.contains("dtype") &&
             value.contains("shape") && value.contains("data_offsets"),
         file, "the entry of '{}' must hold dtype, shape and data_offsets, nothing else", name);
  const DType dtype = parse_safetensors_dtype(value["dtype"], name, file);
  const auto sizes = parse_sizes(value["shape"], "shape", name, file);
  const auto offsets = parse_sizes(value["data_offsets"], "data_offsets", name, file);
  expect(sizes.size() <= Shape::kMaxDims, file, "'{}' has {} dimensions; up to {} can be read",
         name, sizes.size(), Shape::kMaxDims);
  expect(offsets.size() == 2 && offsets[0] <= offsets[1], file,
         "the data_offsets of '{}' must be a begin and an end", name);
  const auto num_bytes = num_bytes_of(sizes, dtype);
  expect(num_bytes == offsets[1] - offsets[0], file,
         "the shape [{}] of '{}' does not fit its {} bytes of {}", fmt::join(sizes, ", "), name,
         offsets[1] - offsets[0], to_string(dtype));
  return {name, dtype, Shape(std::vector<std::size_t>(sizes.begin(), sizes.end())), offsets[0],
          offsets[1]};
}

Metadata parse_metadata(const nlohmann::json& value, const std::string& file) {
  expect(value.is_object(), file, "{} is not an object", kMetadataKey);
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    expect(text.is_string(), file, "{} may hold texts only, but '{}' is none", kMetadataKey, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  for (const auto& [candidate, name] : kDTypeNames) {
    if (candidate == dtype) return name;
  }
  fail(ErrorCode::DType, kOperation, "the format has no element type {}", to_string(dtype));
}

Header parse_header(std::string_view json, std::uint64_t num_data_bytes, const std::string& file) {
  const nlohmann::json root = parse_json(json, file);
  Header header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadataKey) {
      header.metadata = parse_metadata(value, file);
    } else {
      header.entries.push_back(parse_entry(name, value, file));
    }
  }
  std::ranges::sort(header.entries, {},
                    [](const HeaderEntry& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t expected_begin = 0;
  for (const HeaderEntry& entry : header.entries) {
    expect(entry.begin == expected_begin, file,
           "the bytes of '{}' begin at {}, but those before it end at {}", entry.name, entry.begin,
           expected_begin);
    expected_begin = entry.end;
  }
  expect(expected_begin == num_data_bytes, file,
         "the header describes {} bytes of data, the file has {}; it is truncated or corrupt",
         expected_begin, num_data_bytes);
  return header;
}

std::string header_to_json(const Header& header) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) root[std::string(kMetadataKey)] = header.metadata;
  for (const HeaderEntry& entry : header.entries) {
    nlohmann::ordered_json value;
    value["dtype"] = safetensors_dtype(entry.dtype);
    value["shape"] =
        std::vector<std::size_t>(entry.shape.sizes().begin(), entry.shape.sizes().end());
    value["data_offsets"] = {entry.begin, entry.end};
    root[entry.name] = std::move(value);
  }
  try {
    return root.dump();
  } catch (const nlohmann::json::type_error&) {
    fail(ErrorCode::Usage, kOperation, "names and metadata must be UTF-8");
  }
}

}  // namespace lockstep::checkpoint
