// The devices that a test runs on: the CPU's, or with LOCKSTEP_TEST_DEVICE=cuda the GPU's. A suite
// that names its devices through this header is run on both; see lockstep_test(DEVICES).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/core/device.h"

namespace lockstep::testing {

inline DeviceType test_device_type() {
  const char* name = std::getenv("LOCKSTEP_TEST_DEVICE");
  const bool on_cuda = name != nullptr && std::string_view(name) == "cuda";
  return on_cuda ? DeviceType::cuda : DeviceType::cpu;
}

// Logical device `index` of the type under test; 64 of them exist.
inline Device test_device(int index = 0) {
  return {test_device_type(), index};
}

// "cpu:1" in a text as the device under test: "cuda:1".
inline std::string on_test_device(std::string text) {
  const std::string type(to_string(test_device_type()));
  for (std::size_t at = 0; (at = text.find("cpu:", at)) != std::string::npos; at += type.size()) {
    text.replace(at, 3, type);
  }
  return text;
}

}  // namespace lockstep::testing

// For a test of what only the CPU does: threads of its own, memory that the host reads.
#define LOCKSTEP_CPU_ONLY(reason)                                               \
  if (::lockstep::testing::test_device_type() != ::lockstep::DeviceType::cpu) { \
    GTEST_SKIP() << "a test of the CPU: " << (reason);                          \
  }                                                                             \
  static_assert(true, "")
