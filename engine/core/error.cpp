#include "engine/core/error.h"

#include <fmt/format.h>

namespace lockstep {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::Shape:
      return "Shape";
    case ErrorCode::DType:
      return "DType";
    case ErrorCode::Device:
      return "Device";
    case ErrorCode::Cuda:
      return "Cuda";
    case ErrorCode::Comm:
      return "Comm";
    case ErrorCode::Timeout:
      return "Timeout";
    case ErrorCode::Io:
      return "Io";
    case ErrorCode::Usage:
      return "Usage";
    case ErrorCode::State:
      return "State";
    case ErrorCode::Numeric:
      return "Numeric";
  }
  return "Unknown";
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
