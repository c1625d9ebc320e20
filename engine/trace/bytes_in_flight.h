// How much a rank has under way at every moment, from the spans that say how long each of its
// collectives, messages and copies took, and how many bytes it moved.
#pragma once

#include <span>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {

// By time, a sample wherever the sum changes; the last one is 0. Of a rank whose device timed its
// work itself, what the device did; of others what their threads did. Of spans that are nested in
// each other the outermost counts. Empty where nothing was moved.
std::vector<Sample> bytes_in_flight(std::span<const Span> spans, int rank);

}  // namespace lockstep::trace
