#include "tools/report/work_line.h"

#include <fmt/format.h>

namespace lockstep::tools {
namespace {

// `format` has a place for the batch that was asked for.
std::string asked_text(const TrainingTask& task, fmt::format_string<const std::size_t&> format) {
  return task.rows_of_full_batch() < task.batch ? fmt::format(format, task.batch) : "";
}

}  // namespace

std::string count_text(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string steps_text(const TrainingTask& task) {
  return fmt::format("{} of {}{}", count_text(task.num_steps, "step"),
                     count_text(task.rows_of_full_batch(), "row"),
                     asked_text(task, " (batch {} asked)"));
}

std::string batch_text(const TrainingTask& task) {
  return fmt::format("batch {}{}", task.rows_of_full_batch(), asked_text(task, " ({} asked)"));
}

}  // namespace lockstep::tools
