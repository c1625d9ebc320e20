// Escapes and shortens text for an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tools::page {

// The text as HTML shows it, inside an element or a quoted attribute: & < > " ' are escaped, and
// control characters except tab and line end become U+FFFD. So a file's text never becomes markup.
std::string escape(std::string_view text);

// The text, or, if it has more than most_letters letters, "…" and its last ones. The text is UTF-8.
std::string shortened(std::string_view text, std::size_t most_letters);

}  // namespace lockstep::tools::page
