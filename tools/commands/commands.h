// The subcommands of the program `lockstep`. Each adds itself to the app, in its own file; its
// callback runs after the command line is parsed, if it names the command.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::tools {

// argv, as the run file records it.
using CommandLine = std::vector<std::string>;

void add_devices_command(CLI::App& program);
// exit_code: the ranks' exit code, if the command started some.
void add_train_command(CLI::App& program, const CommandLine& command, int& exit_code);
void add_sample_command(CLI::App& program);
void add_compare_command(CLI::App& program, const CommandLine& command, int& exit_code);
void add_watch_command(CLI::App& program);
void add_plan_command(CLI::App& program);
void add_predict_command(CLI::App& program, const CommandLine& command);
void add_bench_command(CLI::App& program, const CommandLine& command, int& exit_code);
void add_env_command(CLI::App& program);
void add_explain_command(CLI::App& program, const CommandLine& command);
// exit_code: 1 if there are findings.
void add_doctor_command(CLI::App& program, const CommandLine& command, int& exit_code);
void add_report_command(CLI::App& program);
// exit_code: the tutorial's, if the command ran one.
void add_learn_command(CLI::App& program, const CommandLine& command, int& exit_code);
void add_grade_command(CLI::App& program);
void add_run_command(CLI::App& program, const CommandLine& command, int& exit_code);

// The position of the program in `lockstep run ...`: at "--", else at the first word that is
// neither a flag nor a flag's value. The number of words in every other command.
std::size_t find_program_to_run(const CommandLine& command);

// The number of words that are Lockstep's own: in `run` those before the program, in commands that
// start another program after "--" those before it.
std::size_t num_own_words(const CommandLine& command);
// The words after "--"; empty for a command that starts no other program.
CommandLine words_behind_dashes(const CommandLine& command);

// Subcommands of `bench`.
void add_bench_step_command(CLI::App& bench, const CommandLine& command);
void add_bench_all_reduce_command(CLI::App& bench, const CommandLine& command, int& exit_code);

}  // namespace lockstep::tools
