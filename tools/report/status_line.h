// One line at the bottom of a terminal that says what goes on, rewritten in place. Where stderr is
// no terminal, nothing is ever written. Any thread may call these.
#pragma once

#include <string_view>

namespace lockstep::tools {

// Whether stderr is a terminal.
bool has_status_line();

// Shows the text, cut to the terminal's width, in place of the last one.
void show_status(std::string_view text);

// Leaves the line empty, for whoever prints next.
void clear_status();

}  // namespace lockstep::tools
