// Text for a table of HTML that a program writes.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tools::page {

// The text as HTML shows it, inside an element or a quoted attribute: & < > " ' are escaped,
// control characters but tab and line end become U+FFFD. So no text of a file is ever markup.
std::string escape(std::string_view text);

// The text, or "…" and its last letters (of UTF-8) where it has more than so many.
std::string shortened(std::string_view text, std::size_t most_letters);

}  // namespace lockstep::tools::page
