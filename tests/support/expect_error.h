// Checks that a call fails as the library promises: by lockstep::Error, with this code and these
// words in its message.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/core/error.h"
#include "tests/support/devices.h"

namespace lockstep::testing {

// Words that name a CPU device, "cpu:1", mean that device of the type under test (devices.h).
template <typename Function>
void expect_error(ErrorCode code, const std::string& words, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(on_test_device(words)));
    EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n"))) << "one line, please";
    return;
  }
  ADD_FAILURE() << "expected an error with the words: " << words;
}

}  // namespace lockstep::testing
