#include "tools/prediction/network_speed.h"

#include <charconv>

#include "tools/prediction/name_words.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kMaxPorts = 64;
constexpr double kMaxGigabits = 1e5;

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

// How many gigabits the unit at the beginning of the text is; 0: it is none.
double gigabits_of_unit(std::string_view text) {
  struct Unit {
    std::string_view word;
    double gigabits;
  };
  // Only in "GB" does it matter how letters are written: bytes, and not the b of Ethernet's GbE.
  constexpr Unit kUnits[] = {{"GbE", 1},     {"GBE", 1},  {"gbe", 1},  {"Gbe", 1},  {"Gbit/s", 1},
                             {"Gbits/s", 1}, {"Gbit", 1}, {"gbit", 1}, {"Gb/s", 1}, {"gb/s", 1},
                             {"Gbps", 1},    {"gbps", 1}, {"GB/s", 8}, {"GBps", 8}, {"Gb", 1},
                             {"gb", 1},      {"G", 1},    {"g", 1}};
  for (const Unit& unit : kUnits) {
    if (!text.starts_with(unit.word)) continue;
    const bool ends =
        text.size() == unit.word.size() || !is_letter_or_digit(text[unit.word.size()]);
    if (ends) return unit.gigabits;
  }
  return 0;
}

}  // namespace

std::optional<NetworkSpeed> find_network_speed(std::string_view interconnect) {
  const std::string words = name_words(interconnect);
  const bool has_inner_link = words.find(" nvlink") != std::string::npos ||
                              words.find(" nvswitch") != std::string::npos ||
                              words.find(" pcie") != std::string::npos;
  for (std::size_t i = 0; i < interconnect.size(); ++i) {
    const bool begins = interconnect[i] >= '0' && interconnect[i] <= '9' &&
                        (i == 0 || !(is_letter_or_digit(interconnect[i - 1]) ||
                                     interconnect[i - 1] == '.' || interconnect[i - 1] == '-'));
    if (!begins) continue;
    NetworkSpeed speed;
    std::string_view rest = interconnect.substr(i);
    const auto read = [&](auto& value) {
      const char* const end = rest.data() + rest.size();
      const auto [stop, error] = std::from_chars(rest.data(), end, value);
      rest = without_blanks(rest.substr(static_cast<std::size_t>(stop - rest.data())));
      return error == std::errc();
    };
    if (!read(speed.gigabits_per_second)) continue;
    if (!rest.empty() && (rest[0] == 'x' || rest[0] == 'X')) {
      rest = interconnect.substr(i);
      if (!read(speed.ports)) continue;
      rest = without_blanks(rest.substr(1));
      if (!read(speed.gigabits_per_second)) continue;
    }
    const double unit = gigabits_of_unit(rest);
    if (unit == 0 || (unit > 1 && has_inner_link)) continue;
    speed.gigabits_per_second *= unit;
    const bool is_good = speed.ports >= 1 && speed.ports <= kMaxPorts &&
                         speed.gigabits_per_second > 0 && speed.gigabits_per_second <= kMaxGigabits;
    return is_good ? std::optional(speed) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep::tools
