// An error as the bytes in which it travels between ranks: over TCP, in shared memory, in the
// store, in a message of MPI.
//
//   byte  0  u8   ErrorCode
//         1  u16  bytes of the operation, little-endian
//         3  the operation, then the message
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/core/error.h"

namespace lockstep::comm {

// What does not fit is cut off: the end of the message, then of the operation.
// REQUIRES: max_bytes >= 3.
std::string encode(const Error& error, std::size_t max_bytes);

// Bytes that are no error read as an Error{Comm} that says so: something has failed all the same.
Error decode_error(std::string_view bytes);

}  // namespace lockstep::comm
