// Reads integers from JSON that another program may have changed: json.get() converts any number to
// any type, and a value that does not fit is undefined behaviour.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace lockstep::tools {

// Throws std::range_error if the value is not an integer, or does not fit into T.
template <std::integral T>
T integer(const nlohmann::json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  } else if (json.is_number_integer()) {
    const auto value = json.get<std::int64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  }
  throw std::range_error(
      fmt::format("expected an integer of {} bits, found {}", 8 * sizeof(T),
                  json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

// Reads the member of that name.
template <std::integral T>
void read_integer(const nlohmann::json& object, const char* name, T& value) {
  value = integer<T>(object.at(name));
}

}  // namespace lockstep::tools
