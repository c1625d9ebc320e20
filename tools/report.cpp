// lockstep report: shows run files as one HTML page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/cli/command_line.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/page/page.h"
#include "tools/report/row_table.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;  // files and folders
  std::string output_path = "report.html";
  page::NamedFiles named;
};

// The page must not replace a file that it is made from.
void require_other_file(const ReportFlags& flags, std::vector<std::string> inputs) {
  for (const std::string& path : {flags.named.trace, flags.named.log}) {
    if (!path.empty()) inputs.push_back(path);
  }
  for (const std::string& input : inputs) {
    require(!is_same_file(flags.output_path, input), ErrorCode::Usage, "--output",
            "'{}' is also a file to read; name another", flags.output_path);
  }
}

void run_report(const ReportFlags& flags) {
  const FoundRuns found = find_runs(flags.runs, "report");
  const bool has_named = !flags.named.trace.empty() || !flags.named.log.empty();
  require(!has_named || found.paths.size() == 1, ErrorCode::Usage, "report",
          "--trace-file and --log-file belong to one run, found {}; leave them out: each run's "
          "own are looked for beside its run file",
          found.paths.size());
  require_other_file(flags, found.paths);
  require_writable({{"--output", flags.output_path}});
  std::vector<page::PageRun> runs;
  for (const std::string& path : found.paths) {
    runs.push_back(page::load_run(path, flags.named, "report"));
  }
  page::name_runs(runs);
  const std::string html = page::make_page(runs);
  write_file_atomically(flags.output_path, html);
  for (const page::PageRun& run : runs) {
    for (const std::string& missing : run.missing) {
      fmt::print("{}\n", wrap(fmt::format("{}: {}", run.name, missing)));
    }
  }
  if (!found.left_out.empty()) {
    fmt::print("{}\n",
               wrap(fmt::format("left out, no run file: {}", fmt::join(found.left_out, ", "))));
  }
  fmt::print("report: {} ({} run{}, {} kB); open it in a browser\n", flags.output_path, runs.size(),
             runs.size() == 1 ? "" : "s", html.size() / 1000);
}

}  // namespace

void add_report_command(CLI::App& program) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App& report = *program.add_subcommand("report", "Show runs as one HTML page, side by side");
  report
      .add_option("runs", flags->runs,
                  "run files (--json of train and compare), or folders of them")
      ->default_str("")
      ->required();
  report.add_option("-o,--output", flags->output_path, "write the page here");
  report.add_option("--trace-file", flags->named.trace,
                    "the run's timeline (default: the file that its --trace named)");
  report.add_option("--log-file", flags->named.log,
                    "the run's log of losses (default: the file that its --log named)");
  report.callback([flags] { run_report(*flags); });
}

}  // namespace lockstep::tools
