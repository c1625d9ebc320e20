// lockstep doctor -- PROGRAM ARGUMENTS: runs a program that uses the engine, and tells which
// invariants of data-parallel training it breaks. It judges only the records that the program's
// processes write (doctor/record).
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/cli/processes.h"
#include "tools/commands.h"
#include "tools/doctor/judges.h"
#include "tools/doctor/records.h"
#include "tools/ranks/start_ranks.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {
namespace {

constexpr const char* kDoctor = "doctor";

struct DoctorFlags {
  double timeout_seconds = 60;
  std::string json_path;
};

// A program that ran under a time limit.
struct Examined {
  std::string output;          // its standard output, the first MiB
  std::string last_error;      // the last line of its standard error
  int exit_code = 0;           // 128 + signal if a signal ended it
  bool has_timed_out = false;  // it was killed, with everything that it had started
};

// The program records itself in `folder` (LOCKSTEP_AUDIT). Both its streams go to this process's
// standard error, so that standard output holds only the doctor's words.
Examined run_examined(const std::vector<std::string>& command, const std::string& folder,
                      double timeout_seconds) {
  launch::Environment environment = launch::current_environment();
  const std::string program = launch::find_program(command.at(0), environment, "doctor");
  environment["LOCKSTEP_AUDIT"] = folder;
  const bool adopted_before = launch::adopt_orphans(true);
  launch::StartedProcess started = launch::start_process(program, command, environment);
  constexpr std::size_t kMostKept = std::size_t{1} << 20;
  Examined examined;
  LastLine last_error;
  const auto take = [&](ChildStream stream, std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stderr);
    if (stream == ChildStream::err) {
      last_error.add(piece);
    } else {
      std::string& kept = examined.output;
      kept += piece.substr(0, kMostKept - std::min(kMostKept, kept.size()));
    }
    return true;
  };
  const ChildEnd end = read_child(started, std::min(timeout_seconds, 1e6), take);
  examined.has_timed_out = end == ChildEnd::out_of_time;
  examined.exit_code = 128 + SIGKILL;
  if (!examined.has_timed_out) examined.exit_code = reap(started.id);
  launch::kill_descendants();
  launch::adopt_orphans(adopted_before);
  examined.last_error = last_error.text();
  return examined;
}

doctor::Findings judge(const doctor::Records& records, const Examined& examined,
                       const std::vector<doctor::Trainer>& trainers,
                       const std::vector<doctor::Training>& trainings) {
  const bool ended_well = examined.exit_code == 0 && !examined.has_timed_out;
  doctor::Findings findings;
  judge_weights(trainings, findings);
  judge_gradients(records, trainings, findings);
  judge_rows(records, trainings, findings);
  judge_calls(records, trainings, ended_well ? doctor::End::well : doctor::End::badly, findings);
  judge_steps(records, trainers, trainings, findings);
  judge_models(records, findings);
  judge_printed(examined.output, trainings, findings);
  return findings;
}

// Says how the program ended, unless it ended well.
std::string describe_end(const Examined& examined, double timeout_seconds) {
  if (examined.has_timed_out) {
    return fmt::format(
        "the program did not end within {:g} s and was killed; --timeout gives it more",
        timeout_seconds);
  }
  if (examined.exit_code == 0) return {};
  return fmt::format("the program ended with exit code {}: {}", examined.exit_code,
                     examined.last_error);
}

std::string describe_extent(const doctor::Records& records,
                            const std::vector<doctor::Trainer>& trainers) {
  const auto collectives =
      std::ranges::count(records.calls, false, &doctor::CallRecord::is_message);
  return fmt::format("processes: {}, optimizers: {}, steps: {}, collective calls: {}",
                     records.processes.size(), trainers.size(), records.steps.size(), collectives);
}

nlohmann::ordered_json to_json(const CommandLine& job, const doctor::Findings& findings,
                               const Examined& examined) {
  nlohmann::ordered_json json{{"schema", "lockstep.doctor/1"},
                              {"command", job},
                              {"exit_code", examined.exit_code},
                              {"timed_out", examined.has_timed_out},
                              {"findings", nlohmann::ordered_json::array()}};
  for (const doctor::Finding& finding : findings) {
    json["findings"].push_back({{"invariant", finding.invariant},
                                {"found", finding.found},
                                {"expected", finding.expected},
                                {"advice", finding.advice}});
  }
  return json;
}

int run_doctor(const DoctorFlags& flags, const CommandLine& job) {
  require(!job.empty(), ErrorCode::Usage, kDoctor,
          "say what to run: lockstep doctor -- PROGRAM ARGUMENTS");
  require_positive("--timeout", flags.timeout_seconds);
  require_writable({{"--json", flags.json_path}});
  const TemporaryFolder folder(kDoctor);
  const Examined examined = run_examined(job, folder.path(), flags.timeout_seconds);
  const doctor::Records records = doctor::read_records(folder.path());
  const std::vector<doctor::Trainer> trainers = doctor::find_trainers(records);
  const std::vector<doctor::Training> trainings = doctor::find_trainings(records, trainers);
  doctor::Findings findings = judge(records, examined, trainers, trainings);
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const bool has_recorded = !records.processes.empty();
  if (!has_recorded) {
    fmt::print(
        out, "the program has recorded nothing: it does not train, or does not use this engine\n");
  }
  for (const doctor::IntendedRecord& intended : records.intended) {
    const auto is_it = [&](const doctor::Finding& f) { return f.invariant == intended.invariant; };
    if (std::erase_if(findings, is_it) == 0) continue;
    fmt::print(out, "{} is broken on purpose: {}\n", intended.invariant, intended.reason);
  }
  for (const doctor::Finding& finding : findings) {
    fmt::print(out, "{}: {}. Rule: {}. Hint: {}.\n", finding.invariant, finding.found,
               finding.expected, finding.advice);
  }
  const std::string end = describe_end(examined, flags.timeout_seconds);
  if (!end.empty()) fmt::print(out, "program: {}\n", end);
  if (!flags.json_path.empty()) write_json(flags.json_path, to_json(job, findings, examined));
  if (!has_recorded && end.empty()) return 2;
  const std::string extent = describe_extent(records, trainers);
  if (findings.empty() && end.empty()) {
    fmt::print(out, "no broken invariant ({})\n", extent);
    return 0;
  }
  fmt::print(out, "{} broken invariant{} ({})\n", findings.size(), findings.size() == 1 ? "" : "s",
             extent);
  return 1;
}

}  // namespace

void add_doctor_command(CLI::App& program, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App& doctor_command = *program.add_subcommand(
      kDoctor, "Run a program and name the rules of data-parallel training that it breaks");
  doctor_command.add_option("--timeout", flags->timeout_seconds,
                            "seconds after which the program is killed");
  doctor_command.add_option("--json", flags->json_path,
                            "write the findings here (-: standard output)");
  doctor_command.footer(
      "Then: -- PROGRAM ARGUMENTS. Exit code 0: no finding, 1: findings, or the program failed, 2: "
      "it recorded nothing.");
  const CommandLine job = words_behind_dashes(command);
  doctor_command.callback([flags, job, &exit_code] { exit_code = run_doctor(*flags, job); });
}

}  // namespace lockstep::tools
