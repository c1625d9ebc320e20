// Holds the memory that `lockstep predict` states for this engine's nets to what `compare`
// measures.
#pragma once

#include <string>

namespace lockstep::testing {

// For several nets, all modes, one, two and four devices, and with accumulation: within 3 % for the
// device that holds most. Prints the table. device: flags of compare; topology: such devices, four
// or more.
void expect_predicted_memory(const std::string& device, const std::string& topology);

}  // namespace lockstep::testing
