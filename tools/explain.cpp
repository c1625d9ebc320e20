// lockstep explain: explains a run file in sentences.
#include "tools/explain/explain.h"
#include "tools/cli/command_line.h"

#include <fmt/format.h>

#include <memory>

#include "engine/core/text.h"
#include "tools/commands.h"
#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

void run_explain(const std::string& path) {
  const RunFile file = read_run_file(path, "explain");
  const std::string model = file.config_value("model");
  const std::string dataset = file.config_value("dataset");
  if (!model.empty())
    fmt::print("{}\n", wrap(fmt::format("{} on {}", shown(model), shown(dataset))));
  fmt::print("{}\n", wrap(headline(file)));
  for (const Answer& answer : explain(file)) {
    fmt::print("\n{}\n{}\n", answer.title, wrap(answer.text));
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
