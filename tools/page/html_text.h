// Text for an HTML page: escaped, and figures with their units.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools::page {

// The text as HTML shows it, inside an element or a quoted attribute: & < > " ' are escaped,
// control characters but tab and line end become U+FFFD. So no text of a file is ever markup.
std::string escape(std::string_view text);

// In letters of UTF-8, not in bytes.
std::size_t num_letters(std::string_view text);

// The text, or "…" and its last letters where it has more than so many.
std::string shortened(std::string_view text, std::size_t most_letters);

// The words as a shell reads them back: quoted where they hold more than letters, digits and
// -_./=:,+
std::string shell_line(const std::vector<std::string>& words);

// A unit in which the largest of some figures has one to three digits before the point.
struct Unit {
  double size = 1;
  std::string_view name;
};
Unit seconds_unit(double largest);  // s, ms or us, as trace::format_seconds()
Unit bytes_unit(double largest);    // GiB, MiB or KiB

// Three significant digits without trailing zeros: "0.031", "4.38", "116", "1.2e-09".
std::string short_number(double value);

}  // namespace lockstep::tools::page
