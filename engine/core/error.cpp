#include "engine/core/error.h"

#include <array>

#include <fmt/format.h>

namespace lockstep {

std::string_view to_string(ErrorCode code) {
  constexpr std::array<std::string_view, 10> kNames{
      "Shape", "DType", "Device", "Cuda", "Comm", "Timeout", "Io", "Usage", "State", "Numeric"};
  return kNames[static_cast<std::size_t>(code)];
}

int exit_code(ErrorCode code) {
  return code == ErrorCode::Usage ? 2 : 1;
}

Error::Error(ErrorCode code, std::string_view operation, std::string_view message)
    : std::runtime_error(fmt::format("[{}] {}", operation, message)),
      code_(code),
      operation_bytes_(operation.size()) {}

void fail_with(ErrorCode code, std::string_view operation, fmt::string_view format,
               fmt::format_args args) {
  throw Error(code, operation, fmt::vformat(format, args));
}

}  // namespace lockstep
