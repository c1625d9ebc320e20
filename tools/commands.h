// The subcommands of the program `lockstep`. Each adds itself to the app, in a file of its own; its
// callback runs when the command line was parsed and names it.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/command.h"

namespace lockstep::tools {

// argv as the run file records it.
using CommandLine = std::vector<std::string>;

void add_devices_command(Command& program);
// exit_code: what the ranks ended with, where the command started some.
void add_train_command(Command& program, const CommandLine& command, int& exit_code);
void add_sample_command(Command& program);
void add_compare_command(Command& program, const CommandLine& command);
void add_plan_command(Command& program);
void add_predict_command(Command& program, const CommandLine& command);
void add_calibrate_command(Command& program);
void add_bench_command(Command& program, const CommandLine& command, int& exit_code);
void add_env_command(Command& program);
void add_check_gradients_command(Command& program);
void add_explain_command(Command& program);
// exit_code: 1 where there are findings.
void add_doctor_command(Command& program, const CommandLine& command, int& exit_code);
void add_report_command(Command& program);
// exit_code: the tutorial's, where the command ran one.
void add_learn_command(Command& program, const CommandLine& command, int& exit_code);
void add_grade_command(Command& program);
void add_run_command(Command& program, const CommandLine& command, int& exit_code);

// Where in `lockstep run ...` the program begins: at "--", else at the first word that is neither a
// flag nor a flag's value. Behind the last word in every other command.
std::size_t find_program_to_run(const CommandLine& command);
void add_with_devices_command(Command& program, const CommandLine& command);

// How many words of the command line are Lockstep's own: in `run` those before the program, in
// commands that start another program by "--" those before that.
std::size_t num_own_words(const CommandLine& command);
// What follows "--"; of a command that starts no other program: nothing.
CommandLine words_behind_dashes(const CommandLine& command);

// Below `bench`.
void add_bench_step_command(Command& bench, const CommandLine& command);
void add_bench_all_reduce_command(Command& bench, const CommandLine& command, int& exit_code);

}  // namespace lockstep::tools
