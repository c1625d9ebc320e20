// The median step of an acted run as rows of characters over a time axis, for the terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutorials/acted.h"

namespace lockstep::tutorial {

// The length of the median step: the width of a picture that shows it all.
std::int64_t length_ns(const ActedSteps& acted);

// What one device did: each of its spans as a run of the letter that letter_of() gives it; 0: the
// span is not drawn. width_ns: what the whole row stands for.
using LetterOf = std::function<char(const trace::Span& span)>;
std::string draw_lane(const ActedSteps& acted, int device, std::int64_t width_ns,
                      const LetterOf& letter_of);

// 'f' forward, 'b' backward, '+' a gradient added to another, 'u' the optimizer's update; 0 for
// what is no kernel.
char kernel_letter(const trace::Span& span);

// Microseconds above the rows, which begin `indent` columns to the right.
void print_axis(std::int64_t width_ns, std::size_t indent);

}  // namespace lockstep::tutorial
