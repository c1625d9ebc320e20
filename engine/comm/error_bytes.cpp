#include "engine/comm/error_bytes.h"

#include <algorithm>
#include <cstdint>

namespace lockstep::comm {
namespace {

constexpr std::size_t kHeadBytes = 3;

std::size_t byte_at(std::string_view bytes, std::size_t index) {
  return static_cast<unsigned char>(bytes[index]);
}

}  // namespace

std::string encode(const Error& error, std::size_t max_bytes) {
  const std::string_view operation =
      error.operation().substr(0, std::min<std::size_t>(max_bytes - kHeadBytes, UINT16_MAX));
  std::string bytes{static_cast<char>(error.code()), static_cast<char>(operation.size() & 0xff),
                    static_cast<char>(operation.size() >> 8)};
  bytes += operation;
  return bytes += error.message().substr(0, max_bytes - bytes.size());
}

Error decode_error(std::string_view bytes) {
  if (bytes.size() >= kHeadBytes &&
      byte_at(bytes, 0) <= static_cast<std::size_t>(ErrorCode::Numeric)) {
    const std::size_t operation_bytes = byte_at(bytes, 1) | byte_at(bytes, 2) << 8;
    const std::string_view text = bytes.substr(kHeadBytes);
    if (operation_bytes <= text.size()) {
      return {static_cast<ErrorCode>(bytes[0]), text.substr(0, operation_bytes),
              text.substr(operation_bytes)};
    }
  }
  return {ErrorCode::Comm, "collective", "a rank failed, and what it says of that is unreadable"};
}

}  // namespace lockstep::comm
