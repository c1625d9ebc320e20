// lockstep bench: the parent of `bench step` and `bench all-reduce`.
#include "tools/commands.h"

namespace lockstep::tools {

void add_bench_command(Command& program, const CommandLine& command, int& exit_code) {
  Command bench = program.add_command("bench", "Measure a training step or a collective");
  bench.require_command();
  add_bench_step_command(bench, command);
  add_bench_all_reduce_command(bench, command, exit_code);
}

}  // namespace lockstep::tools
