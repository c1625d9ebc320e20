// Which span an instant belongs to: the innermost of those around it.
#pragma once

#include <span>
#include <vector>

#include "engine/trace/intervals.h"

namespace lockstep::trace {

// The spans of one thread, cut into pieces that do not overlap: the parts of each span in which no
// other lies. By time; a piece is a copy of its span but for begin and end. Of spans that overlap
// without nesting, the one that began last counts.
std::vector<Span> innermost_pieces(std::vector<Span> spans);

// Whether a GPU timed the work of this rank itself: then the host's spans only say when it was
// given the work.
bool has_device_spans(std::span<const Span> spans, int rank);

// The pieces of all that this rank did, but its steps: of its device's own spans where it has such,
// else of its threads'. What a device does on its comm lane is a thread of its own.
std::vector<Span> pieces_of_rank(std::span<const Span> spans, int rank);

// Whether the device computes during this piece: on the compute lane, neither communicating nor
// waiting.
bool is_computing(const Span& piece);

// The times of the pieces that satisfy `chosen`.
template <typename Chosen>
IntervalSet times_of(const std::vector<Span>& pieces, Chosen chosen) {
  std::vector<Interval> times;
  for (const Span& piece : pieces) {
    if (chosen(piece)) times.push_back({piece.begin_ns, piece.end_ns});
  }
  return union_of(std::move(times));
}

}  // namespace lockstep::trace
