// lockstep grade: builds what students hand in, runs it in a sandbox, and judges its answers.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/output_path.h"
#include "tools/grading/grade.h"
#include "tools/grading/sandbox.h"
#include "tools/record/run_file.h"

namespace lockstep::tools {
namespace {

struct GradeFlags {
  std::string folder;
  std::string hidden;
  std::string format = "text";
  std::string json_path;
  std::string csv_path;
  std::string html_path;
  std::string watch_path;
  std::optional<int> pass_percent;
};

using grading::GradeReport;

void write_files(const GradeFlags& flags, const GradeReport& report) {
  if (!flags.json_path.empty()) {
    write_json(flags.json_path, flags.format == "gradescope" ? grading::to_gradescope(report)
                                                             : grading::to_json(report));
  }
  if (!flags.csv_path.empty()) write_file_atomically(flags.csv_path, grading::to_csv(report));
  if (!flags.html_path.empty()) write_file_atomically(flags.html_path, grading::to_html(report));
}

// The page of a puzzle's schedule. A puzzle that does not compile, or has a blank, has none.
void write_page(const std::string& path, const GradeReport& report) {
  for (const grading::Grade& grade : report.grades) {
    for (const grading::CheckResult& result : grade.results) {
      if (!result.played) continue;
      write_file_atomically(path, grading::to_player(grade.submission.lab->title, *result.played));
      return;
    }
  }
  fail(ErrorCode::Usage, "--watch", "no schedule of a puzzle was run, so there is none to draw");
}

void print(const GradeFlags& flags, const GradeReport& report, bool is_batch) {
  if (flags.json_path == "-") return;
  if (flags.format == "gradescope") {
    if (flags.json_path.empty()) {
      fmt::print("{}\n", grading::to_gradescope(report).dump(2));
    }
    return;
  }
  fmt::print("{}", is_batch ? grading::to_table(report) : grading::to_text(report));
}

void require_passed(const GradeFlags& flags, const GradeReport& report) {
  if (!flags.pass_percent) return;
  for (const grading::Grade& grade : report.grades) {
    const auto [points, possible_points] = grade.points();
    require(possible_points > 0 && 100 * points >= *flags.pass_percent * possible_points,
            ErrorCode::Numeric, "grade", "'{}' has {} of {} points, and --pass asks for {} %",
            grade.submission.name, points, possible_points, *flags.pass_percent);
  }
}

void run_grade(const GradeFlags& flags) {
  using grading::Submissions;
  require_writable({{"--json", flags.json_path},
                    {"--csv", flags.csv_path},
                    {"--html", flags.html_path},
                    {"--watch", flags.watch_path}});
  const Submissions submissions = grading::find_submissions(flags.folder);
  const bool is_batch = submissions.kind == Submissions::Kind::batch;
  require(flags.format == "text" || !is_batch, ErrorCode::Usage, "--format",
          "gradescope is for one submission, found {} in '{}'", submissions.list.size(),
          flags.folder);
  require(flags.watch_path.empty() || submissions.list.size() == 1, ErrorCode::Usage, "--watch",
          "draws the schedule of one puzzle, found {} submissions in '{}'", submissions.list.size(),
          flags.folder);
  std::optional<std::string> secret;
  if (!flags.hidden.empty()) secret = grading::read_secret(flags.hidden);
  const grading::Places places = grading::find_places();
  GradeReport report;
  report.sandbox = grading::find_sandbox(places);
  report.has_hidden = secret.has_value();
  report.grades = grading::grade_all(places, submissions.list, secret);
  print(flags, report, is_batch);
  write_files(flags, report);
  if (!flags.watch_path.empty()) write_page(flags.watch_path, report);
  require_passed(flags, report);
}

}  // namespace

void add_grade_command(CLI::App& program) {
  auto flags = std::make_shared<GradeFlags>();
  CLI::App& grade =
      *program.add_subcommand("grade", "Grade a lab: build and check students' solutions");
  grade.add_option("labdir", flags->folder, "a lab's folder, or a folder of submissions")
      ->required();
  add_option(grade, "--hidden", flags->hidden, "FOLDER",
             "run the hidden checks too, with the secret in this folder");
  add_option(grade, "--json", flags->json_path, "FILE",
             "write the report here (-: standard output)");
  grade.add_option("--format", flags->format, "format of the output and of --json")
      ->check(one_of({"text", "gradescope"}));
  add_option(grade, "--csv", flags->csv_path, "FILE", "write a line for each submission here");
  add_option(grade, "--html", flags->html_path, "FILE", "write a page with all submissions here");
  add_option(grade, "--watch", flags->watch_path, "FILE",
             "write a page here in which a puzzle's schedule plays, with memory over time");
  add_option(grade, "--pass", flags->pass_percent, "PERCENT",
             "exit with 1 if a submission has less than this percentage of the points")
      ->check(CLI::Range(0, 100));
  grade.callback([flags] { run_grade(*flags); });
}

}  // namespace lockstep::tools
