// Words that a submission or its compiler wrote, made fit for a report.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::tools::grading {

// Valid UTF-8, whatever it was: what is not becomes U+FFFD.
std::string clean_text(std::string_view text);

// The same as one line of at most so many bytes; control characters become spaces.
std::string clean_line(std::string_view text, std::size_t most_bytes = 300);

}  // namespace lockstep::tools::grading
