#include "datasets/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "datasets/byte_source.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kOperation = "csv";

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The lines of a file, one at a time: no more of it than a line and a piece is in memory.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path) : source_(path) {}

  // Without its newline; valid until the next call. Nothing at the end.
  std::optional<std::string_view> next() {
    std::size_t searched = begin_;
    while (true) {
      const std::size_t end = text_.find('\n', searched);
      if (end != std::string::npos) return take(end, end + 1);
      if (has_ended_) break;
      text_.erase(0, std::exchange(begin_, 0));
      searched = text_.size();
      append_piece();
    }
    if (begin_ == text_.size()) return std::nullopt;
    return take(text_.size(), text_.size());
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

  std::string_view take(std::size_t end, std::size_t next) {
    const std::size_t begin = std::exchange(begin_, next);
    return std::string_view(text_).substr(begin, end - begin);
  }

  void append_piece() {
    const std::size_t size = text_.size();
    text_.resize(size + kPieceBytes);
    const std::size_t num_read =
        source_.read({reinterpret_cast<std::uint8_t*>(text_.data()) + size, kPieceBytes});
    text_.resize(size + num_read);
    has_ended_ = num_read < kPieceBytes;
  }

  ByteSource source_;
  std::string text_;
  std::size_t begin_ = 0;  // of the next line
  bool has_ended_ = false;
};

// Takes a line's first field off it.
std::string_view take_field(std::string_view& line) {
  const std::size_t comma = line.find(',');
  const std::string_view field = trim(line.substr(0, comma));
  line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  return field;
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

// A header names columns; a line with a number is a row, perhaps a damaged one.
bool is_header(std::string_view line) {
  while (!line.empty()) {
    if (parse_number<float>(take_field(line))) return false;
  }
  return true;
}

void append_row(CsvRows& rows, std::string_view line, const std::string& place) {
  const auto num_fields = static_cast<std::size_t>(std::ranges::count(line, ',')) + 1;
  if (rows.labels.empty()) rows.num_features = num_fields - 1;
  require(num_fields >= 2 && num_fields == rows.num_features + 1, ErrorCode::Io, kOperation,
          "{}: expected {} fields, found {}", place,
          rows.labels.empty() ? "at least 2" : std::to_string(rows.num_features + 1), num_fields);
  for (std::size_t i = 0; i < rows.num_features; ++i) {
    const std::string_view field = take_field(line);
    const auto value = parse_number<float>(field);
    require(value.has_value() && std::isfinite(*value), ErrorCode::Io, kOperation,
            "{}: field {} is '{}'; expected a number", place, i + 1, shown(field));
    rows.features.push_back(*value);
  }
  const std::string_view last = take_field(line);
  const auto label = parse_number<std::int64_t>(last);
  require(label.has_value() && *label >= 0, ErrorCode::Io, kOperation,
          "{}: the label is '{}'; expected a whole number that is not negative", place,
          shown(last));
  rows.labels.push_back(*label);
}

}  // namespace

CsvRows read_csv(const std::filesystem::path& path) {
  LineReader lines(path);
  CsvRows rows;
  std::size_t line_number = 0;
  while (const std::optional<std::string_view> line = lines.next()) {
    ++line_number;
    if (trim(*line).empty() || (line_number == 1 && is_header(*line))) continue;
    append_row(rows, *line, fmt::format("'{}' line {}", path.string(), line_number));
  }
  require(rows.num_rows() > 0, ErrorCode::Io, kOperation, "'{}' has no rows", path.string());
  return rows;
}

}  // namespace lockstep::datasets
