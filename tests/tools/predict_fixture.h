// lockstep predict in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {

class Predict : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  Outcome run(const std::string& arguments) {
    return run_lockstep(words("predict " + arguments), folder_.path());
  }

  TempFolder folder_;
};

}  // namespace lockstep::testing
