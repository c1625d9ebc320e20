// From what lab_host reports of a submission to a verdict.
#pragma once

#include <string>
#include <vector>

#include "tools/grading/limited_run.h"
#include "tutorials/labs/judging/lab.h"

namespace lockstep::tools::grading {

// end: of a process that was given these cases. Its output is believed to be whatever the
// submission wants: a check is passed only if every case's answer has the right values.
// Returns what went wrong, in a line; empty: the check is passed.
std::string judge_answers(const lab::Check& check, const std::vector<lab::json>& cases,
                          const RunEnd& end, const RunLimits& limits);

}  // namespace lockstep::tools::grading
