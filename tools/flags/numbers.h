// Reads numbers from the command line. Each function throws Error{Usage} that names the flag and
// the word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::tools {

// "0,3" as {0, 3}: whole numbers without a sign, separated by commas.
std::vector<std::size_t> parse_list(std::string_view flag, std::string_view text);

// "16K" as 16384. Units K, M, G and T, each also as in KB and KiB, are powers of 1024.
std::size_t parse_bytes(std::string_view flag, std::string_view text);

// Each returns the value if it is in range (at least 1, at least 0, positive) and finite.
std::size_t require_positive(std::string_view flag, int value);
double require_not_negative(std::string_view flag, double value);
double require_positive(std::string_view flag, double value);

// The bytes of so many MiB: above 0, at most a million; one byte at least.
std::size_t mib_to_bytes(std::string_view flag, double mib);

std::uint64_t machine_memory_bytes();

// Throws Error{Usage} that names the flag if it asks for more bytes than the machine has memory.
// The number is a double because it may not fit into an integer.
void require_memory(std::string_view flag, double num_bytes);

}  // namespace lockstep::tools
