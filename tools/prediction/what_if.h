// What `lockstep predict` changes: the values of --what-if.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::tools {

// One change; 0: as it was.
struct WhatIf {
  std::string text = {};  // "bucket_mib=25"; empty: nothing is changed
  double bucket_mib = 0;
  double bandwidth = 0;   // times that of all links
  std::size_t batch = 0;  // over all devices
};

// "bucket_mib=1,25,100", "bandwidth=2x", "batch=64,256": one change a value.
// Throws Error{Usage} that names the word.
std::vector<WhatIf> parse_what_if(const std::string& word);

}  // namespace lockstep::tools
