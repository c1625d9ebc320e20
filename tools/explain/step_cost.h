// Turns rows of a run file into the rows that `compare` holds, so that both judge a run by the same
// code (report/bound.h). Also says what a step would cost with another batch or with more devices,
// by three formulas over the breakdown of a measured row:
//
//   forward and backward take time in proportion to the rows that a device has; the optimizer,
//   loading, copies, waiting and the host take the same time for any batch; so does communication,
//   whose messages are the gradients.
#pragma once

#include <optional>
#include <vector>

#include "tools/report/run_file.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools {

// A row of the file, and the same row as compare's.
struct RunRows {
  std::vector<const FileRow*> of_file;  // they live as long as the file
  std::vector<RunRow> rows;
};

enum class Changes { with, without };

// Returns the rows of one kind, with or without those that a --what-if changed. Acted and predicted
// devices each have their own hardware. A mode that compare does not have ("hierarchical") is
// judged like ddp: each of its devices computes everything and sends gradients.
RunRows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes);

// True if the row has base's mode and devices, and a --what-if changed only `what`, such as
// "batch".
bool is_changed_in(const FileRow& row, const FileRow& base, std::string_view what);

// step(batch) = seconds_per_row * batch + fixed_seconds; batch: rows over all devices.
struct StepLine {
  double seconds_per_row = 0;
  double fixed_seconds = 0;

  double at(double batch) const { return seconds_per_row * batch + fixed_seconds; }
};

// The line from one row: seconds_per_row = (forward + backward) / batch, and the rest is fixed.
// REQUIRES: a breakdown; forward and backward take time in proportion to the rows
// (is_proportional).
StepLine line_of(const FileRow& row);

// The line through the steps of two rows that differ only in the batch.
StepLine line_through(const FileRow& small, const FileRow& large);

// True if forward and backward got shorter in proportion to each device's rows, within a fifth. It
// compares several's seconds * ideal with one's seconds, per row; ideal: how many times as much
// hardware several has. Waiting for kernels to start, and reading weights, do not shrink like that.
// REQUIRES: breakdowns.
bool is_proportional(const FileRow& one, const FileRow& several, double ideal);

// True if the steps of these rows lie on the line within a tenth, each row costs time, and the
// fixed part is not negative.
bool is_on_line(const StepLine& line, const std::vector<const FileRow*>& rows);

// The smallest batch at which one.at(batch) / several.at(batch) >= factor:
//   (factor * several.fixed - one.fixed) / (one.per_row - factor * several.per_row), at least 1.
// Empty if no batch reaches it.
std::optional<double> batch_for_speedup(const StepLine& one, const StepLine& several,
                                        double factor);

// The same batch on twice the devices.
struct DoubledStep {
  double computation = 0;     // forward + backward, halved
  double fixed = 0;           // unchanged
  double traffic_factor = 1;  // how many times as long communication takes
  double comm = 0;            // all communication, hidden or not
  double hidden = 0;  // hidden behind backward: as before times the factor, at most all of backward
  double step = 0;    // computation + fixed + comm - hidden
};

// traffic_factor: in a ring each device sends 2(n-1)/n times the gradients, so (2n-1)/(2n-2) times
// as much with 2n devices; in dp device 0 serves n-1 others, so (2n-1)/(n-1).
// REQUIRES: a breakdown, and at least two devices.
DoubledStep double_devices(const FileRow& row);

}  // namespace lockstep::tools
