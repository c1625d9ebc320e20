// The spans of a recording, laid out in rows for a picture: in one row no two spans overlap.
//
// A lane has a row for its phases and one for its ops ("compute", "compute ops"); steps have their
// own row. What a GPU timed itself (thread kDeviceThread) has rows of its own, "GPU compute". A
// span that would overlap an earlier one of its row, because it is nested in it or because two
// threads used the lane at once, goes one row further down ("compute ops, level 2").
#pragma once

#include <string>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {

// Spans in as few rows as this takes: by begin (of two that begin together the longer first), each
// into the first row where it overlaps nothing. So nested spans stand below what surrounds them.
std::vector<std::vector<Span>> disjoint_rows(std::vector<Span> spans);

struct TimelineRow {
  int rank = 0;
  std::string name;
  std::vector<Span> spans;  // by begin; each ends before the next begins, or just then
};

// Rows by rank; within a rank steps, then host, compute, copy and comm with their ops.
std::vector<TimelineRow> timeline_of(const std::vector<Span>& spans);

}  // namespace lockstep::trace
