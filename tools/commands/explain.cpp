// lockstep explain: explains a run file in sentences.
#include "tools/show/explain.h"
#include "tools/flags/command_line.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "engine/core/text.h"
#include "tools/commands/commands.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// One device's step and the judged row's, part by part.
void print_parts(const RunFile& file) {
  const std::vector<PartOfStep> parts = parts_of_judged_row(file);
  if (parts.empty()) return;
  const FileRow& row = judged_row(file);
  fmt::print("\n{:<22}{:>12}{:>12}{:>14}{:>12}\n", "part of a step", "one device", "ideal share",
             name_of(row), "more");
  PartOfStep step{"step"};
  const auto print = [](const PartOfStep& part) {
    const double more = part.row - part.share;
    fmt::print("{:<22}{:>12}{:>12}{:>14}{:>12}\n", part.name, trace::format_seconds(part.one),
               trace::format_seconds(part.share), trace::format_seconds(part.row),
               (more < 0 ? "-" : "") + trace::format_seconds(std::abs(more)));
  };
  for (const PartOfStep& part : parts) {
    step.one += part.one;
    step.share += part.share;
    step.row += part.row;
    if (part.one > 0 || part.row > 0) print(part);
  }
  print(step);
}

void run_explain(const std::string& path) {
  const RunFile file = read_run_file(path, "explain");
  const std::string model = file.config_value("model");
  const std::string dataset = file.config_value("dataset");
  if (!model.empty())
    fmt::print("{}\n", wrap(fmt::format("{} on {}", shown(model), shown(dataset))));
  if (file.interrupted) {
    fmt::print("{}\n", wrap(fmt::format("{} was {}", shown(path), *file.interrupted)));
  }
  fmt::print("{}\n", wrap(headline(file)));
  const std::vector<Answer> answers = explain(file);
  for (const Answer& answer : answers) {
    fmt::print("\n{}\n{}\n", answer.title, wrap(answer.text));
    if (&answer == &answers.front()) print_parts(file);
  }
}

}  // namespace

void add_explain_command(CLI::App& program) {
  auto path = std::make_shared<std::string>();
  CLI::App& explain =
      *program.add_subcommand("explain", "Explain what limits a run, and which row is the fastest");
  explain.add_option("run", *path, "a run file (--json of train and compare)")->required();
  explain.footer("lockstep predict --workload RUN says what other devices and batches would give.");
  explain.callback([path] { run_explain(*path); });
}

}  // namespace lockstep::tools
