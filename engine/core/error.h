// The one exception type of the library.
//
// what() reads "[operation] what was expected, what was found, what to do next". Only main()
// catches: it prints what() as one line on stderr and exits with exit_code(code()).
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

enum class ErrorCode {
  Shape,    // sizes that do not fit each other
  DType,    // an element type that the operation does not take
  Device,   // an unknown device, or tensors on different devices
  Cuda,     // a call into CUDA, cuBLAS or NCCL failed
  Comm,     // ranks disagree, or a peer failed
  Timeout,  // a deadline passed
  Io,       // a file is missing, truncated, corrupt or unwritable
  Usage,    // the caller's words are wrong: an option, a name, a range
  State,    // a call that is not allowed now, such as a second backward
  Numeric,  // a loss or gradient that is not finite, weights that differ
};

// "Shape", "Device", ... as written above.
std::string_view to_string(ErrorCode code);

// Process exit code for an error: 2 for Usage, else 1.
int exit_code(ErrorCode code);

class Error : public std::runtime_error {
 public:
  // operation is written without brackets: Error(ErrorCode::Shape, "scatter", "cannot split ...").
  Error(ErrorCode code, std::string_view operation, std::string_view message);

  ErrorCode code() const noexcept { return code_; }
  // The two parts of what(); they live as long as this error.
  std::string_view operation() const noexcept { return {what() + 1, operation_bytes_}; }
  std::string_view message() const noexcept { return what() + operation_bytes_ + 3; }

 private:
  ErrorCode code_;
  std::size_t operation_bytes_;
};

// The only place that puts a message together, so that its many callers stay small.
[[noreturn]] void fail_with(ErrorCode code, std::string_view operation, fmt::string_view format,
                            fmt::format_args args);

// Throws Error with a message formatted by fmt.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, std::string_view operation,
                       fmt::format_string<Args...> format, Args&&... args) {
  fail_with(code, operation, format, fmt::make_format_args(args...));
}

// Throws Error unless condition holds. The arguments are formatted only on failure.
template <typename... Args>
void require(bool condition, ErrorCode code, std::string_view operation,
             fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail_with(code, operation, format, fmt::make_format_args(args...));
  }
}

}  // namespace lockstep
