// Runs the program as a user does: with arguments, in a folder, and looks at what it printed.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

using Arguments = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  // 128 + signal when a signal ended the program
  std::string out;
  std::string err;
};

// Runs `lockstep arguments...` with `folder` as its current folder, and waits for its end.
Outcome run_lockstep(const Arguments& arguments, const std::filesystem::path& folder);

// The same in a folder of its own.
Outcome run_lockstep(const Arguments& arguments);

// "train --steps 3" as arguments. Words hold no spaces.
Arguments words(const std::string& text);

// Expects exit code 0, and on stderr nothing.
void expect_success(const Outcome& outcome);

// Expects this exit code and one line on stderr that holds all phrases; and no epoch on stdout:
// the mistake was found before training.
void expect_rejected(const Outcome& outcome, int exit_code,
                     const std::vector<std::string>& phrases);

// The digest that `train` printed; empty if it did not.
std::string weights_digest(const Outcome& outcome);

nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace lockstep::testing
