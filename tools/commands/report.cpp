// lockstep report: shows run files as one HTML page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/output_path.h"
#include "tools/record/run_reader.h"
#include "tools/show/page.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;  // files and folders
  std::string output_path = "report.html";
  std::string trace_path;
};

// The page must not replace a file that it is made from.
void require_other_file(const ReportFlags& flags, std::vector<std::string> inputs) {
  if (!flags.trace_path.empty()) inputs.push_back(flags.trace_path);
  for (const std::string& input : inputs) {
    require(!is_same_file(flags.output_path, input), ErrorCode::Usage, "--output",
            "'{}' is also a file to read; name another", flags.output_path);
  }
}

void run_report(const ReportFlags& flags) {
  const FoundRuns found = find_runs(flags.runs, "report");
  require(flags.trace_path.empty() || found.paths.size() == 1, ErrorCode::Usage, "report",
          "--trace-file belongs to one run, found {}; leave it out: each run's own is looked for "
          "beside its run file",
          found.paths.size());
  require_other_file(flags, found.paths);
  require_writable({{"--output", flags.output_path}});
  std::vector<page::PageRun> runs;
  for (const std::string& path : found.paths) {
    runs.push_back(page::load_run(path, flags.trace_path, "report"));
  }
  page::name_runs(runs);
  const std::string html = page::make_page(runs);
  write_file_atomically(flags.output_path, html);
  for (const page::PageRun& run : runs) {
    if (run.file.interrupted) {
      print_wrapped(stdout, fmt::format("{} was {}", run.name, *run.file.interrupted));
    }
    for (const std::string& missing : run.missing) {
      print_wrapped(stdout, fmt::format("{}: {}", run.name, missing));
    }
  }
  if (!found.left_out.empty()) {
    print_wrapped(stdout,
                  fmt::format("left out, not a run file: {}", fmt::join(found.left_out, ", ")));
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
  add_option(report, "-o,--output", flags->output_path, "FILE", "write the page here");
  add_option(report, "--trace-file", flags->trace_path, "FILE",
             "the run's timeline (default: the file that its --trace named)");
  report.callback([flags] { run_report(*flags); });
}

}  // namespace lockstep::tools
