#include "tools/flags/numbers.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/core/error.h"

namespace lockstep::tools {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"", "K", "M", "G", "T"};

// Takes the number off the beginning of text. Returns false if there is none or it is too large.
bool take_number(std::string_view& text, std::size_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

std::vector<std::size_t> parse_list(std::string_view flag, std::string_view text) {
  std::vector<std::size_t> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    std::string_view rest = item;
    std::size_t number = 0;
    require(take_number(rest, number) && rest.empty(), ErrorCode::Usage, flag,
            "expected numbers such as 1,2,4, found '{}'", item);
    numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

std::size_t parse_bytes(std::string_view flag, std::string_view text) {
  std::string_view rest = text;
  std::size_t number = 0;
  bool valid = take_number(rest, number);
  if (rest.ends_with("B")) rest.remove_suffix(1);
  if (rest.ends_with("i")) rest.remove_suffix(1);
  for (std::size_t power = 0; valid && power < kUnits.size(); ++power) {
    if (rest != kUnits[power]) continue;
    const std::size_t shift = 10 * power;
    if (number <= std::numeric_limits<std::size_t>::max() >> shift) return number << shift;
    valid = false;
  }
  fail(ErrorCode::Usage, flag, "expected a number of bytes such as 64, 16K or 64M, found '{}'",
       text);
}

std::size_t require_positive(std::string_view flag, int value) {
  require(value >= 1, ErrorCode::Usage, flag, "must be at least 1, found {}", value);
  return static_cast<std::size_t>(value);
}

double require_not_negative(std::string_view flag, double value) {
  require(std::isfinite(value) && value >= 0, ErrorCode::Usage, flag,
          "must be a finite number of at least 0, found {}", value);
  return value;
}

double require_positive(std::string_view flag, double value) {
  require(std::isfinite(value) && value > 0, ErrorCode::Usage, flag,
          "must be a finite number above 0, found {}", value);
  return value;
}

std::size_t mib_to_bytes(std::string_view flag, double mib) {
  require(std::isfinite(mib) && mib > 0 && mib <= 1e6, ErrorCode::Usage, flag,
          "must be a positive number of MiB, found {}", mib);
  return std::max<std::size_t>(1, static_cast<std::size_t>(mib * (1 << 20)));
}

std::uint64_t machine_memory_bytes() {
  struct sysinfo memory {};
  sysinfo(&memory);
  return static_cast<std::uint64_t>(memory.totalram) * memory.mem_unit;
}

void require_memory(std::string_view flag, double num_bytes) {
  constexpr double kGib = std::size_t{1} << 30;
  const auto available = static_cast<double>(machine_memory_bytes());
  require(num_bytes <= available, ErrorCode::Usage, flag,
          "asks for {:.1f} GiB of memory, and this machine has {:.1f}; use a smaller one",
          num_bytes / kGib, available / kGib);
}

}  // namespace lockstep::tools
