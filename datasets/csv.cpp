#include "datasets/csv.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "datasets/byte_source.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kCsvOperation = "csv";

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The lines of a file, one at a time: at most a line and a piece of it are in memory.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path) : source_(path) {}

  // The next line without its newline, valid until the next call; nullopt at the end.
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
  std::size_t begin_ = 0;  // where the next line begins
  bool has_ended_ = false;
};

// The end of the line's first field: the first separator outside quotes.
std::size_t find_separator(std::string_view line, char separator) {
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') is_quoted = !is_quoted;
    if (line[i] == separator && !is_quoted) return i;
  }
  // A quote that nothing closes is a character like others.
  return is_quoted ? line.find(separator) : std::string_view::npos;
}

// Takes a line's first field off it, without its quotes.
std::string_view take_field(std::string_view& line, char separator) {
  const std::size_t end = find_separator(line, separator);
  std::string_view field = trim(line.substr(0, end));
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"') {
    field = trim(field.substr(1, field.size() - 2));
  }
  return field;
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  const bool ends_empty = line.ends_with(separator);
  while (!line.empty()) fields.push_back(take_field(line, separator));
  if (ends_empty) fields.emplace_back();
  return fields;
}

// Empty for what is no number, and for one that is too large for a float32. One that is too small
// is 0, as everywhere.
std::optional<double> parse_number(std::string_view text) {
  constexpr double kFirstInfinite =
      0x1.ffffffp127;  // what rounds to a larger float32 than there is
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    value = std::strtod(std::string(text).c_str(), nullptr);
  }
  if (!(std::abs(value) < kFirstInfinite)) return std::nullopt;  // also NaN
  return value;
}

char guess_separator(std::string_view line) {
  char best = ',';
  for (const char candidate : {';', '\t'}) {
    if (split(line, candidate).size() > split(line, best).size()) best = candidate;
  }
  return best;
}

// True for "0,1,2": programs that name columns give such names to a table of numbers.
bool counts_columns(const std::vector<std::string_view>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] != std::to_string(i)) return false;
  }
  return fields.size() >= 3;
}

bool is_header(const std::vector<std::string_view>& fields) {
  return counts_columns(fields) || std::ranges::none_of(fields, [](std::string_view field) {
           return parse_number(field).has_value();
         });
}

bool names_the_label(std::string_view field) {
  std::string name(field);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name == "label" || name == "class" || name == "target" || name == "y";
}

// The rows of one file, built while its lines are read.
class Table {
 public:
  explicit Table(std::string file) : file_(std::move(file)) {}

  void add_line(std::string_view line) {
    ++line_number_;
    if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (trim(line).empty()) return;
    const bool is_first = num_fields_ == 0;
    if (is_first) separator_ = guess_separator(line);
    const std::vector<std::string_view> fields = split(line, separator_);
    if (is_first) {
      num_fields_ = fields.size();
      check(num_fields_ >= 2, "expected at least 2 fields, found {}", num_fields_);
      label_column_ = num_fields_ - 1;
      rows_.num_features = num_fields_ - 1;
      if (is_header(fields)) return read_header(fields);
    }
    check(fields.size() == num_fields_, "expected {} fields, found {}", num_fields_, fields.size());
    append_row(fields);
  }

  CsvRows finish() {
    require(rows_.num_rows() > 0, ErrorCode::Io, kCsvOperation, "'{}' has no rows", file_);
    const bool is_one_class =
        std::ranges::adjacent_find(rows_.labels, std::not_equal_to<>()) == rows_.labels.end();
    require(rows_.num_rows() < kFewRows || !is_one_class, ErrorCode::Io, kCsvOperation,
            "'{}': the label (column {} of {}) is {} in every row; if another column is the "
            "label, call it 'label' in a first line that names the columns",
            file_, label_column_ + 1, num_fields_, rows_.labels.front());
    return std::move(rows_);
  }

 private:
  static constexpr std::size_t kFewRows = 10;

  template <typename... Args>
  void check(bool holds, fmt::format_string<Args...> text, Args&&... args) const {
    if (holds) return;
    fail(ErrorCode::Io, kCsvOperation, "'{}' line {}: {}", file_, line_number_,
         fmt::format(text, std::forward<Args>(args)...));
  }

  void read_header(const std::vector<std::string_view>& fields) {
    const auto num_labels = std::ranges::count_if(fields, names_the_label);
    check(num_labels <= 1, "{} columns are named label, class, target or y; expected one",
          num_labels);
    const auto label = std::ranges::find_if(fields, names_the_label);
    if (label != fields.end()) label_column_ = static_cast<std::size_t>(label - fields.begin());
  }

  void append_row(const std::vector<std::string_view>& fields) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::optional<double> value = parse_number(fields[i]);
      if (i == label_column_) {
        check(value && *value >= 0 && *value <= kLargestLabel && *value == std::floor(*value),
              "the label is '{}'; expected a whole number that is not negative", shown(fields[i]));
        rows_.labels.push_back(static_cast<std::int64_t>(*value));
      } else {
        check(value.has_value(), "field {} is '{}'; expected a number", i + 1, shown(fields[i]));
        rows_.features.push_back(static_cast<float>(*value));
      }
    }
  }

  static constexpr double kLargestLabel = 1e15;  // whole numbers below are exact in a double

  std::string file_;
  std::size_t line_number_ = 0;
  char separator_ = ',';
  std::size_t num_fields_ = 0;  // 0 before the first line that is not empty
  std::size_t label_column_ = 0;
  CsvRows rows_;
};

}  // namespace

CsvRows read_csv(const std::filesystem::path& path) {
  LineReader lines(path);
  Table table(path.string());
  while (std::optional<std::string_view> line = lines.next()) {
    if (line->ends_with('\r')) line->remove_suffix(1);
    // Old files end their lines with only a carriage return.
    for (std::size_t end = line->find('\r'); end != line->npos; end = line->find('\r')) {
      table.add_line(line->substr(0, end));
      line->remove_prefix(end + 1);
    }
    table.add_line(*line);
  }
  return table.finish();
}

}  // namespace lockstep::datasets
