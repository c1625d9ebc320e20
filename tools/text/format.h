// Sizes, counts and sentences as people read them on a terminal.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace lockstep::tools {

// "0 B", "75.0 KiB", "4.3 MiB".
std::string format_bytes(std::size_t num_bytes);

// "1.98x", "15.7x", "128x", "0.072x".
std::string format_factor(double factor);

// No command prints a wider line.
inline constexpr std::size_t kTerminalColumns = 80;

// Breaks the text at spaces, so that it fits between `margin` and `columns`. Each line but the
// first begins with the margin's spaces.
std::string wrap(std::string_view text, std::size_t columns = kTerminalColumns,
                 std::size_t margin = 0);

// Prints the text as lines of that width; of an empty one nothing.
void print_wrapped(std::FILE* out, std::string_view text);

// "1 epoch", "24 steps".
std::string count_text(std::size_t count, std::string_view noun);

// "124,354,560".
std::string with_thousands(std::size_t number);

}  // namespace lockstep::tools
