// Prints headings, checks and answers, for all tutorials. No printed line is longer than 80
// columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tutorial {

// "── Step 3: sum the gradients ──" between two empty lines.
void step(int number, std::string_view title);

// Prints "check: claim ... ok". Throws Error{Numeric} if it does not hold.
void check(std::string_view claim, bool holds);
// The same for a claim about times, which only a machine with free cores can show: if it does not
// hold, this says so and goes on.
void check_times(std::string_view claim, bool holds);
// "check: claim: largest difference 3e-08, tolerance 1e-05 ... ok". A NaN does not pass.
void check_close(std::string_view claim, double largest_difference, double tolerance);

// Flags to give to this program, such as "--devices 8", and what they show.
struct Variation {
  std::string flags;
  std::string shows;
};

// The end of a tutorial: "Answer: ..." in two to four lines, with figures just measured, and "Now
// try:" with commands to run next, in the way in which this program was started: by its name, or by
// `lockstep learn`.
void answer(std::string_view text, const std::vector<Variation>& variations);

// Prints a text as one paragraph, in lines of at most 80 columns; all but the first begin with
// `indent` spaces. A "\n" begins a new line.
void say(std::string_view text, std::size_t indent = 0);

}  // namespace lockstep::tutorial
