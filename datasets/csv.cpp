#include "datasets/csv.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/core/error.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kOperation = "csv";

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(trim(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

void append_row(CsvRows& rows, const std::vector<std::string_view>& fields,
                const std::string& place) {
  if (rows.labels.empty()) rows.num_features = fields.size() - 1;
  require(fields.size() >= 2 && fields.size() == rows.num_features + 1, ErrorCode::Io, kOperation,
          "{}: expected {} fields, found {}", place,
          rows.labels.empty() ? "at least 2" : std::to_string(rows.num_features + 1),
          fields.size());
  for (std::size_t i = 0; i < rows.num_features; ++i) {
    const auto value = parse_number<float>(fields[i]);
    require(value.has_value() && std::isfinite(*value), ErrorCode::Io, kOperation,
            "{}: field {} is '{}'; expected a number", place, i + 1, fields[i]);
    rows.features.push_back(*value);
  }
  const auto label = parse_number<std::int64_t>(fields.back());
  require(label.has_value() && *label >= 0, ErrorCode::Io, kOperation,
          "{}: the label is '{}'; expected a whole number that is not negative", place,
          fields.back());
  rows.labels.push_back(*label);
}

}  // namespace

CsvRows read_csv(const std::filesystem::path& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), ErrorCode::Io, kOperation,
          "'{}' is a folder", path.string());
  std::ifstream stream(path);
  require(stream.is_open(), ErrorCode::Io, kOperation, "cannot open '{}': {}", path.string(),
          std::generic_category().message(errno));
  CsvRows rows;
  std::string line;
  for (std::size_t line_number = 1; std::getline(stream, line); ++line_number) {
    if (trim(line).empty()) continue;
    const auto fields = split_fields(line);
    if (line_number == 1 && !parse_number<float>(fields.front())) continue;
    append_row(rows, fields, fmt::format("'{}' line {}", path.string(), line_number));
  }
  require(!stream.bad(), ErrorCode::Io, kOperation, "cannot read '{}'", path.string());
  require(rows.num_rows() > 0, ErrorCode::Io, kOperation, "'{}' has no rows", path.string());
  return rows;
}

}  // namespace lockstep::datasets
