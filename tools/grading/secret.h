// The teacher's secret, from which hidden checks draw their inputs.
#pragma once

#include <filesystem>
#include <string>

#include "tutorials/labs/judging/lab.h"

namespace lockstep::tools::grading {

// Of the file `secret` in the folder that make_labs.sh calls teacher.
// Throws Error{Io} when it cannot be read, Error{Usage} when it has fewer than 16 letters.
std::string read_secret(const std::filesystem::path& folder);

// The same numbers for the same secret, lab and check, and others for any other.
Rng rng_of(const std::string& secret, const lab::Lab& lab, const lab::Check& check);

}  // namespace lockstep::tools::grading
