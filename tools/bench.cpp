#include "tools/commands.h"
namespace lockstep::tools {
void add_bench_command(CLI::App&) {}
}  // namespace lockstep::tools
