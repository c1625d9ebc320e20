// lockstep bench: the parent of `bench step` and `bench all-reduce`.
#include "tools/commands.h"

namespace lockstep::tools {

void add_bench_command(CLI::App& app, const CommandLine& command, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure a training step or a collective");
  bench->require_subcommand(1);
  add_bench_step_command(*bench);
  add_bench_all_reduce_command(*bench, command, exit_code);
}

}  // namespace lockstep::tools
