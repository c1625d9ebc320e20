#include "tools/prediction/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

CsvTable::CsvTable(const std::string& path) : path_(path) {
  read(read_text_file(path, "predict"));
  require(!header_.cells.empty(), ErrorCode::Io, "predict",
          "'{}', line 1: the table is empty; it must begin with the names of its columns", path_);
}

void CsvTable::read(const std::string& text) {
  Row row{1, {}};
  std::string cell;
  std::size_t line = 1;
  bool is_quoted = false;
  const auto end_row = [&] {
    row.cells.push_back(trimmed(cell));
    cell.clear();
    const bool is_empty = row.cells.size() == 1 && row.cells[0].empty();
    if (!is_empty && header_.cells.empty()) {
      header_ = row;
    } else if (!is_empty) {
      rows_.push_back(row);
      if (row.cells.size() != header_.cells.size()) {
        fail_at(rows_.size() - 1, fmt::format("the header has {} columns, this row {}",
                                              header_.cells.size(), row.cells.size()));
      }
    }
    row = {line, {}};
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (is_quoted) {
      const bool is_double = c == '"' && i + 1 < text.size() && text[i + 1] == '"';
      if (is_double) ++i;
      if (c == '"' && !is_double) {
        is_quoted = false;
      } else {
        cell += c;
      }
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == ',') {
      row.cells.push_back(trimmed(cell));
      cell.clear();
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      cell += c;
    }
  }
  require(!is_quoted, ErrorCode::Io, "predict", "'{}', line {}: a quote does not end", path_,
          row.line);
  end_row();
}

bool CsvTable::has_column(std::string_view column) const {
  return std::ranges::find(header_.cells, column) != header_.cells.end();
}

void CsvTable::require_columns(const std::vector<std::string>& columns) const {
  for (const std::string& column : columns) {
    if (!has_column(column)) {
      fail_at(num_rows(), fmt::format("the table has no column '{}'", column));
    }
  }
}

const std::string& CsvTable::cell(std::size_t row, std::string_view column) const {
  const auto found = std::ranges::find(header_.cells, column);
  return rows_[row].cells[static_cast<std::size_t>(found - header_.cells.begin())];
}

std::optional<double> CsvTable::number(std::size_t row, std::string_view column) const {
  const std::string& text = cell(row, column);
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !std::isfinite(value) || value <= 0 || value > 1e18) {
    fail_at(row, fmt::format("{} must be a positive number, found '{}'", column, shown(text)));
  }
  return value;
}

double CsvTable::needed_number(std::size_t row, std::string_view column) const {
  const std::optional<double> value = number(row, column);
  if (!value) fail_at(row, fmt::format("{} is missing", column));
  return *value;
}

std::size_t CsvTable::count(std::size_t row, std::string_view column, std::size_t most) const {
  const double value = number(row, column).value_or(0);
  if (value < 1 || value != std::floor(value) || value > static_cast<double>(most)) {
    fail_at(row, fmt::format("{} must be a whole number from 1 to {}", column, most));
  }
  return static_cast<std::size_t>(value);
}

void CsvTable::fail_at(std::size_t row, const std::string& what) const {
  fail(ErrorCode::Io, "predict", "'{}', line {}: {}", path_,
       row < num_rows() ? rows_[row].line : std::max<std::size_t>(header_.line, 1), what);
}

}  // namespace lockstep::tools
