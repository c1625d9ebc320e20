// lockstep: data-parallel training, step by step. See --help.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/commands/commands.h"
#include "tools/commands/hints.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/output_path.h"
#include "tools/record/version.h"
#include "tools/run/interruption.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

// The commands that start another program after "--"; `run` needs no dashes.
constexpr std::array<std::string_view, 2> kStarters = {"doctor", "learn"};

}  // namespace

std::size_t num_own_words(const CommandLine& command) {
  if (command.size() > 1 && command[1] == "run") return find_program_to_run(command);
  const bool starts_another =
      command.size() > 1 && std::ranges::find(kStarters, command[1]) != kStarters.end();
  if (!starts_another) return command.size();
  return static_cast<std::size_t>(std::ranges::find(command, "--") - command.begin());
}

CommandLine words_behind_dashes(const CommandLine& command) {
  const std::size_t begin = std::min(num_own_words(command) + 1, command.size());
  return {command.begin() + static_cast<std::ptrdiff_t>(begin), command.end()};
}

}  // namespace lockstep::tools

namespace {

using namespace lockstep;
using namespace lockstep::tools;

// Prints one line on stderr for any error, and first tells the launcher that started this process
// as a rank.
int report(const char* message, int exit_code) {
  std::fflush(stdout);
  clear_status();
  std::string line;
  for (const char c : with_flags(message)) line += c == '\n' ? ' ' : c;
  line.insert(0, "lockstep: ");
  launch::write_error_file(launch::current_environment(), line);
  std::fprintf(stderr, "%s\n", line.c_str());
  return exit_code;
}

// The parser takes an empty value for "not given", but it is a mistake, usually an unset shell
// variable.
void require_no_empty_values(const CommandLine& command) {
  for (std::size_t i = 1; i < num_own_words(command); ++i) {
    const std::string& word = command[i];
    const bool ends_open = word.starts_with("--") && word.ends_with("=");
    require(!word.empty() && !ends_open, ErrorCode::Usage,
            ends_open ? word.substr(0, word.size() - 1) : command[i - 1],
            "the value is empty; give one, or leave the flag out");
  }
}

int run(int argc, char** argv) {
  const CommandLine command(argv, argv + argc);
  CLI::App program(
      "Data-parallel training, step by step: scatter, replicate, all-reduce, measured.",
      "lockstep");
  program.set_version_flag("--version", std::string("lockstep ") + kVersion, "print the version");
  program.require_subcommand(1);
  program.option_defaults()->always_capture_default();
  group_flags(program, {});
  int exit_code = 0;
  add_train_command(program, command, exit_code);
  add_compare_command(program, command, exit_code);
  add_sample_command(program);
  add_explain_command(program, command);
  add_doctor_command(program, command, exit_code);
  add_report_command(program);
  add_watch_command(program);
  add_plan_command(program);
  add_predict_command(program, command);
  add_bench_command(program, command, exit_code);
  add_learn_command(program, command, exit_code);
  add_grade_command(program);
  add_devices_command(program);
  add_env_command(program);
  add_run_command(program, command, exit_code);
  program.footer("`lockstep COMMAND --help` describes a command's flags.");
  require_no_empty_values(command);
  const auto own = static_cast<std::ptrdiff_t>(num_own_words(command));
  const std::string problem = parse(program, {command.begin() + 1, command.begin() + own});
  if (!problem.empty()) return report(problem.c_str(), 2);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  launch::occupy_closed_standard_streams();
  survive_file_size_limit();
  try {
    const int exit_code = run(argc, argv);
    flush_standard_output();
    return exit_code;
  } catch (const Interrupted& interrupted) {
    return say_interrupted(interrupted.signal, "0 steps", "");
  } catch (const Error& error) {
    return report(error.what(), exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    return report("out of memory; use a smaller --model, --batch or --dataset", 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}
