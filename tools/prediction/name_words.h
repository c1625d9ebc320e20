// The words of a name in a published table, in one way of writing.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tools {

// Lower case, one blank between words and around them all: "GTX1080Ti (Pascal)" is
// " gtx 1080 ti pascal ". A family's name and the number after it are two words, and so is "ti";
// "PCI Express", "PCIe Gen3" and "PCIe 3.0" are "pcie" and "pcie3", likewise NVLink's.
std::string name_words(std::string_view name);

// Whole words, one after the other: "v100" is not in " v1000 ".
bool has_words(std::string_view words, std::string_view phrase);

}  // namespace lockstep::tools
