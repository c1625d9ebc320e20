// Damage to the bytes of a file: what disks, transfers and strangers do to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::testing {

// The bytes with one to four kinds of damage, which depend on the seed alone: bits turned, the end
// cut off, pieces moved, doubled or left out, sizes spliced in, numbers made huge, NULs, deep
// nesting.
std::string damaged(std::string_view valid, std::uint64_t seed);

}  // namespace lockstep::testing
