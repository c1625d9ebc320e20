// The figures of one run: what the rows of its file say, as <figure> elements.
#pragma once

#include <string>
#include <vector>

#include "tools/page/line_chart.h"
#include "tools/page/step_timeline.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools::page {

// <figure class="NAME ...">: a caption of a title and what it shows, then the picture, then notes.
std::string figure(const std::string& name, const std::string& title, const std::string& subtitle,
                   const std::string& picture, const std::string& notes = {});

// Against devices or, in a file with several batches for the same devices, against rows per device.
std::string epoch_figure(const RunFile& run);
std::string speedup_figure(const RunFile& run);   // with the ideal; empty without a baseline
std::string accuracy_figure(const RunFile& run);  // at the end; empty where no row has it
std::string accuracy_curve(const RunFile& run);   // while training; empty after a single epoch

std::string epochs_figure(const FileRow& row);  // epoch by epoch
std::string loss_figure(const std::vector<Point>& losses);
std::string breakdown_figure(const RunFile& run);  // empty without breakdowns
std::string memory_figure(const RunFile& run);     // empty where no row has it
std::string timeline_figure(const StepTimeline& timeline);

// The class of a mode's colour.
std::string color_of(const std::string& mode);

// Rows with several batches for the same mode and devices.
bool has_growing_batch(const RunFile& run);

// name_of(row), with the rows per device where the file has several batches, the kind where it is
// not measured, and "*" where the row was contended.
std::string bar_label(const RunFile& run, const FileRow& row);

}  // namespace lockstep::tools::page
