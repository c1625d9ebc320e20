// Words out of a file, made fit for one line of a message.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The first 80 bytes, with "..." where there are more, and '?' for each control character: what a
// damaged file holds may be megabytes long, end lines or command a terminal.
std::string shown(std::string_view text);

// As one word of a shell's command line, in single quotes.
std::string shell_quoted(std::string_view text);

}  // namespace lockstep
