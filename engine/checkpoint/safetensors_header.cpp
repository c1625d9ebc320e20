#include "engine/checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"
#include "engine/core/text.h"

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
  if (condition) [[likely]]
    return;
  fail(ErrorCode::Io, kOperation, "'{}': {}", file,
       fmt::format(format, std::forward<Args>(args)...));
}

// Bytes of an array, or nothing where they cannot be counted.
std::optional<std::size_t> num_bytes_of(const std::vector<std::size_t>& sizes, DType dtype) {
  const auto num_bytes = product_of_nonzero(sizes, size_of(dtype));
  return num_bytes && std::ranges::count(sizes, 0U) > 0 ? 0 : num_bytes;
}

// Takes the JSON parser's events, and keeps what a header may hold; anything else is an error where
// it stands, so that memory and time grow with the text alone, however it is nested.
class HeaderEvents {
 public:
  using Json = nlohmann::json;

  explicit HeaderEvents(const std::string& file) : file_(file) {}

  Header take() { return std::move(header_); }

  bool start_object(std::size_t) {
    if (place_ == Place::start) {
      place_ = Place::root;
    } else if (place_ == Place::root) {
      place_ = name_ == kMetadataKey ? Place::metadata : Place::entry;
      found_ = {};
    } else {
      refuse_value();
    }
    return true;
  }

  bool key(std::string& key) {
    if (place_ == Place::entry) {
      field_ = field_named(key);
      bool& is_found = found_[static_cast<std::size_t>(field_)];
      expect(!is_found, file_, "'{}' stands twice in the header", key);
      is_found = true;
    } else if (place_ == Place::metadata) {
      metadata_key_ = std::move(key);
    } else {
      name_ = std::move(key);
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::entry) add_entry();
    if (place_ == Place::metadata) {
      expect(!std::exchange(has_metadata_, true), file_, "'{}' stands twice in the header",
             kMetadataKey);
    }
    place_ = place_ == Place::root ? Place::start : Place::root;
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      const bool is_new = header_.metadata.emplace(metadata_key_, std::move(text)).second;
      expect(is_new, file_, "'{}' stands twice in the header", shown(metadata_key_));
    } else if (place_ == Place::entry && field_ == Field::dtype) {
      dtype_ = parse_safetensors_dtype(text);
    } else {
      refuse_value();
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry || field_ == Field::dtype) refuse_value();
    place_ = Place::sizes;
    sizes().clear();
    return true;
  }

  bool end_array() {
    place_ = Place::entry;
    return true;
  }

  bool number_unsigned(std::uint64_t number) {
    if (place_ != Place::sizes) refuse_value();
    sizes().push_back(number);
    expect(shape_.size() <= Shape::kMaxDims, file_,
           "'{}' has {} dimensions or more; up to {} can be read", shown(name_), shape_.size(),
           Shape::kMaxDims);
    expect(offsets_.size() <= 2, file_, "the data_offsets of '{}' must be a begin and an end",
           shown(name_));
    return true;
  }

  bool null() { return refuse_value(); }
  bool boolean(bool) { return refuse_value(); }
  bool number_integer(std::int64_t) { return refuse_value(); }
  bool number_float(double, const std::string&) { return refuse_value(); }
  bool binary(Json::binary_t&) { return refuse_value(); }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception&) {
    fail(ErrorCode::Io, kOperation, "'{}': the header is not valid JSON (byte {})", file_, byte);
  }

 private:
  enum class Place { start, root, metadata, entry, sizes };
  enum class Field { dtype, shape, data_offsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  std::vector<std::size_t>& sizes() { return field_ == Field::shape ? shape_ : offsets_; }

  Field field_named(std::string_view key) const {
    const auto found = std::ranges::find(kFields, key);
    if (found == kFields.end()) refuse_entry();
    return static_cast<Field>(found - kFields.begin());
  }

  DType parse_safetensors_dtype(std::string_view text) const {
    for (const auto& [dtype, dtype_name] : kDTypeNames) {
      if (text == dtype_name) return dtype;
    }
    fail(ErrorCode::Io, kOperation,
         "'{}': '{}' has elements of type '{}'; F64, F32, BF16, F16, I64, I32 and U8 can be read",
         file_, shown(name_), shown(text));
  }

  void add_entry() {
    if (std::ranges::count(found_, true) != 3) refuse_entry();
    expect(offsets_.size() == 2 && offsets_[0] <= offsets_[1], file_,
           "the data_offsets of '{}' must be a begin and an end", shown(name_));
    expect(num_bytes_of(shape_, dtype_) == offsets_[1] - offsets_[0], file_,
           "the shape [{}] of '{}' does not fit its {} bytes of {}", fmt::join(shape_, ", "),
           shown(name_), offsets_[1] - offsets_[0], to_string(dtype_));
    header_.entries.push_back({std::move(name_), dtype_, Shape(shape_), offsets_[0], offsets_[1]});
  }

  [[noreturn]] void refuse_entry() const {
    fail(ErrorCode::Io, kOperation,
         "'{}': the entry of '{}' must hold dtype, shape and data_offsets, nothing else", file_,
         shown(name_));
  }

  // A value that may not stand where it does.
  bool refuse_value() const {
    const bool is_metadata = place_ == Place::root && name_ == kMetadataKey;
    expect(!is_metadata, file_, "{} is not an object", kMetadataKey);
    expect(place_ != Place::metadata, file_, "{} may hold texts only, but '{}' is none",
           kMetadataKey, shown(metadata_key_));
    if (place_ == Place::root) refuse_entry();
    const std::string_view field = kFields[static_cast<std::size_t>(field_)];
    const std::string_view problem = place_ == Place::sizes
                                         ? "must hold whole numbers that are not negative"
                                     : field_ == Field::dtype ? "is not a string"
                                                              : "is not a list";
    fail(ErrorCode::Io, kOperation, "'{}': the {} of '{}' {}", file_, field, shown(name_), problem);
  }

  const std::string& file_;
  Header header_;
  Place place_ = Place::start;
  bool has_metadata_ = false;
  std::string metadata_key_;
  // Of the entry that is being read.
  std::string name_;
  Field field_ = Field::dtype;
  std::array<bool, 3> found_ = {};
  DType dtype_ = DType::float32;
  std::vector<std::size_t> shape_;
  std::vector<std::size_t> offsets_;
};

void require_distinct_names(const std::vector<HeaderEntry>& entries, const std::string& file) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const HeaderEntry& entry : entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  expect(twice == names.end(), file, "'{}' stands twice in the header",
         twice == names.end() ? "" : shown(*twice));
}

// Their bytes must cover the data without a gap or an overlap. REQUIRES: by begin.
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
  HeaderEvents events(file);
  nlohmann::json::sax_parse(json, &events);
  Header header = events.take();
  require_distinct_names(header.entries, file);
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
