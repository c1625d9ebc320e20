// Rows of a run file as the rows that `compare` has in hand, so that both judge a run by the same
// code (report/bound.h); and what a step would cost with another batch or with more devices, by
// three formulas over the breakdown of a row that was measured:
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

// The rows of one kind; without those that a --what-if changed, or with them. Acted and predicted
// devices have hardware of their own. A mode that compare does not know ("hierarchical") is judged
// as ddp is: each of its devices computes all, and sends gradients.
RunRows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes);

// Whether the row is one of base's mode and devices that a --what-if changed in `what`, such as
// "batch", and in nothing else.
bool is_changed_in(const FileRow& row, const FileRow& base, std::string_view what);

// step(batch) = seconds_per_row * batch + fixed_seconds; batch: rows over all devices.
struct StepLine {
  double seconds_per_row = 0;
  double fixed_seconds = 0;

  double at(double batch) const { return seconds_per_row * batch + fixed_seconds; }
};

// From one row, whose forward and backward must take time in proportion to the rows
// (is_proportional): seconds_per_row = (forward + backward) / batch, the rest is fixed.
// REQUIRES: a breakdown.
StepLine line_of(const FileRow& row);

// Through the steps of two rows that differ in nothing but the batch.
StepLine line_through(const FileRow& small, const FileRow& large);

// Whether forward and backward are so much shorter on several devices as each of these has fewer
// rows, within a fifth: several's seconds * ideal / one's seconds, per row. ideal: by how many
// times several has more hardware. What waits for kernels to start, or reads weights, does not
// shrink so. REQUIRES: breakdowns.
bool is_proportional(const FileRow& one, const FileRow& several, double ideal);

// Whether the steps of these rows lie on the line, within a tenth, and it costs time for each row
// and nothing less than no time for none.
bool is_on_line(const StepLine& line, const std::vector<const FileRow*>& rows);

// The smallest batch at which one.at(batch) / several.at(batch) >= factor:
//   (factor * several.fixed - one.fixed) / (one.per_row - factor * several.per_row), at least 1.
// Empty where no batch reaches it.
std::optional<double> batch_for_speedup(const StepLine& one, const StepLine& several,
                                        double factor);

// The same batch on twice the devices.
struct DoubledStep {
  double computation = 0;     // forward + backward, halved
  double fixed = 0;           // as it was
  double traffic_factor = 1;  // by which communication takes longer
  double comm = 0;            // all of it, hidden or not
  double hidden = 0;  // behind backward: as before, times the factor, at most all of backward
  double step = 0;    // computation + fixed + comm - hidden
};

// traffic_factor: in a ring each device sends 2(n-1)/n times the gradients, so (2n-1)/(2n-2) times
// as much with 2n devices; in dp device 0 serves n-1 others, so (2n-1)/(n-1).
// REQUIRES: a breakdown, and at least two devices.
DoubledStep double_devices(const FileRow& row);

}  // namespace lockstep::tools
