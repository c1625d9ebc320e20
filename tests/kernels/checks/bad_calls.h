// What the tests of kernels/checks.h share: a table of calls that every backend must refuse, with
// the whole text of the error. No word of it names a device, so backends that pass the same row
// throw the same text.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "kernels/backend.h"
#include "tests/support/devices.h"

namespace lockstep::kernels {

inline constexpr DType kFloat = DType::float32;
inline constexpr DType kDouble = DType::float64;

// Views whose elements nobody reads: a bad call ends before that. All stand at one place on the
// host.
inline void* some_memory() {
  alignas(64) static std::byte memory[64];
  return memory;
}
inline TensorView vec(std::size_t num_elements, DType dtype = kFloat) {
  return {some_memory(), dtype, num_elements};
}
inline MatrixView mat(std::size_t rows, std::size_t cols, DType dtype = kFloat) {
  return matrix_view(some_memory(), dtype, rows, cols);
}
inline MatrixView batch_of(std::size_t batch, std::size_t rows, std::size_t cols) {
  return {some_memory(), kFloat, rows, cols, cols, batch, rows * cols};
}

struct BadCall {
  ErrorCode code;
  std::string text;
  std::function<void(Backend&, Stream&)> call;
};

// Makes each call on the device under test and compares code and text.
inline void expect_refused(const std::vector<BadCall>& table) {
  const Device device = testing::test_device();
  Backend& backend_under_test = backend(device.type);
  Stream& stream = runtime::logical_device(device).compute_stream();
  for (const BadCall& row : table) {
    try {
      row.call(backend_under_test, stream);
      ADD_FAILURE() << "expected an error: " << row.text;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(row.code)) << row.text;
      EXPECT_EQ(error.what(), row.text);
    }
  }
}

// `good` with one thing changed: spoilt(call, [](auto& c) { c.bias = vec(4); }).
template <typename Call, typename Change>
Call spoilt(Call good, const Change& change) {
  change(good);
  return good;
}

}  // namespace lockstep::kernels
