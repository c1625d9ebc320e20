// lockstep doctor -- PROGRAM ARGUMENTS: runs a program that uses the engine, and tells which
// invariants of data-parallel training it breaks. It judges only the records that the program's
// processes write (doctor/record).
#include <fmt/format.h>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/commands/commands.h"
#include "tools/doctor/judges.h"
#include "tools/doctor/records.h"
#include "tools/flags/command_line.h"
#include "tools/flags/numbers.h"
#include "tools/flags/output_path.h"
#include "tools/record/run_file.h"
#include "tools/run/processes.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr const char* kDoctor = "doctor";

struct DoctorFlags {
  double timeout_seconds = 60;
  std::string json_path;
};

// The program records itself in `folder` (LOCKSTEP_AUDIT). Both its streams go to this process's
// standard error, so that standard output holds only the doctor's words.
ChildEnd examine(std::vector<std::string> command, const std::string& folder,
                 double timeout_seconds) {
  launch::Environment environment = launch::current_environment();
  const std::string program = launch::find_program(command.at(0), environment, kDoctor);
  environment["LOCKSTEP_AUDIT"] = folder;
  command[0] = program;
  const launch::ProcessTree tree;
  const ChildEnd end = run_child(command, environment,
                                 {.seconds = std::min(timeout_seconds, 1e6),
                                  .beyond_bytes = ChildLimits::BeyondBytes::forget,
                                  .echo = stderr});
  tree.kill();
  return end;
}

doctor::Findings judge(const doctor::Records& records, const ChildEnd& program,
                       const std::vector<doctor::Trainer>& trainers,
                       const std::vector<doctor::Training>& trainings) {
  doctor::Findings findings;
  judge_weights(trainings, findings);
  judge_gradients(records, trainings, findings);
  judge_rows(records, trainings, findings);
  judge_calls(records, trainings, program.code == 0 ? doctor::End::well : doctor::End::badly,
              findings);
  judge_steps(records, trainers, trainings, findings);
  judge_models(records, findings);
  judge_printed(program.out, trainings, findings);
  return findings;
}

// Says how the program ended, unless it ended well.
std::string describe_end(const ChildEnd& program, double timeout_seconds) {
  if (program.how == ChildEnd::How::out_of_time) {
    return fmt::format(
        "the program did not end within {:g} s and was killed; --timeout gives it more",
        timeout_seconds);
  }
  if (program.code == 0) return {};
  return fmt::format("the program ended with exit code {}: {}", program.code,
                     last_line(program.err));
}

std::string describe_extent(const doctor::Records& records,
                            const std::vector<doctor::Trainer>& trainers) {
  const auto collectives =
      std::ranges::count(records.calls, false, &doctor::CallRecord::is_message);
  return fmt::format("processes: {}, optimizers: {}, steps: {}, collective calls: {}",
                     records.processes.size(), trainers.size(), records.steps.size(), collectives);
}

// Text that does not fit into the first line stands below it, indented, so that names stand out.
void print_below(std::FILE* out, const std::string& text) {
  constexpr std::size_t kIndent = 4;
  fmt::print(out, "{}\n", wrap(text, kTerminalColumns, kIndent));
}

int run_doctor(const DoctorFlags& flags, const CommandLine& job) {
  require(!job.empty(), ErrorCode::Usage, kDoctor,
          "say what to run: lockstep doctor -- PROGRAM ARGUMENTS");
  require_positive("--timeout", flags.timeout_seconds);
  require_writable({{"--json", flags.json_path}});
  const TemporaryFolder folder;
  const ChildEnd program = examine(job, folder.path(), flags.timeout_seconds);
  const doctor::Records records = doctor::read_records(folder.path());
  const std::vector<doctor::Trainer> trainers = doctor::find_trainers(records);
  const std::vector<doctor::Training> trainings = doctor::find_trainings(records, trainers);
  doctor::Findings findings = judge(records, program, trainers, trainings);
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const bool has_recorded = !records.processes.empty();
  if (!has_recorded) {
    print_below(out,
                "the program has recorded nothing: it does not train, or does not use this engine");
  }
  for (const doctor::IntendedRecord& intended : records.intended) {
    const auto is_it = [&](const doctor::Finding& f) { return f.invariant == intended.invariant; };
    if (std::erase_if(findings, is_it) == 0) continue;
    print_below(out,
                fmt::format("{} is broken on purpose: {}", intended.invariant, intended.reason));
  }
  for (const doctor::Finding& finding : findings) {
    print_below(out, fmt::format("{}: {}.", finding.invariant, finding.found));
    print_below(out, fmt::format("  rule: {}.", finding.expected));
    print_below(out, fmt::format("  hint: {}.", finding.advice));
  }
  const std::string end = describe_end(program, flags.timeout_seconds);
  if (!end.empty()) print_below(out, "program: " + end);
  if (!flags.json_path.empty()) {
    write_json(flags.json_path, {{"schema", "lockstep.doctor/1"},
                                 {"command", job},
                                 {"exit_code", program.code},
                                 {"timed_out", program.how == ChildEnd::How::out_of_time},
                                 {"findings", nlohmann::json(findings)}});
  }
  if (!has_recorded && end.empty()) return 2;
  const std::string extent = describe_extent(records, trainers);
  if (findings.empty() && end.empty()) {
    print_below(out, fmt::format("no broken invariant ({})", extent));
    return 0;
  }
  print_below(out, fmt::format("{} ({})", count_text(findings.size(), "broken invariant"), extent));
  return 1;
}

}  // namespace

void add_doctor_command(CLI::App& program, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App& doctor_command = *program.add_subcommand(
      kDoctor, "Run a program and name the rules of data-parallel training that it breaks");
  doctor_command.add_option("--timeout", flags->timeout_seconds,
                            "kill the program after so many seconds");
  add_option(doctor_command, "--json", flags->json_path, "FILE",
             "write the findings here (-: standard output)");
  doctor_command.footer(
      "Then comes -- and the program with its arguments:\n  lockstep doctor -- ./my_training\n"
      "The exit code is 0 if nothing was found, 1 if something was or the program failed, and 2 if "
      "the program recorded nothing.");
  const CommandLine job = words_behind_dashes(command);
  doctor_command.callback([flags, job, &exit_code] { exit_code = run_doctor(*flags, job); });
}

}  // namespace lockstep::tools
