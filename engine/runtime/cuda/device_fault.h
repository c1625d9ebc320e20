// Reports a kernel's errors about its input to the host, without waiting for the device.
//
// Kernels run long after the call that launched them, so they cannot throw for a bad index or
// label. Instead a kernel writes it into a word of host memory that belongs to the logical device.
// The next event or copy back that the host waits for throws it, and afterwards the device works as
// before.
#pragma once

#include <cstdint>

namespace lockstep {
class Error;
}

namespace lockstep::runtime::cuda {

enum class FaultKind : std::int32_t {
  none,
  row_index,
  label,
  token,
  host_error,  // error
};

// It lies in host memory that the device's kernels can write. The first fault stays until it is
// thrown: a kernel claims `kind` by an atomic exchange against none, fills in the rest and sets
// is_written last.
struct DeviceFault {
  std::int32_t kind = 0;  // FaultKind
  std::int32_t is_written = 0;
  std::int64_t value = 0;        // the index, label or token
  std::int64_t limit = 0;        // it should have been 0 ... limit - 1
  const Error* error = nullptr;  // lives as long as the process
};

// Makes one, which lives as long as the process.
DeviceFault* make_device_fault();

// For host-side errors that make a device's values worthless, such as an aborted collective: the
// next wait throws this error.
void report_from_host(DeviceFault& fault, const Error& error);

// Throws what is written, and makes room for the next one: the host's error, or Error{Shape}.
void throw_if_written(DeviceFault& fault);

}  // namespace lockstep::runtime::cuda
