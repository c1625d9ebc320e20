// lockstep: data-parallel training, step by step. See --help.
#include <cstdio>
#include <exception>

#include "engine/core/error.h"
#include "tools/commands.h"
#include "tools/report/version.h"

namespace {

// One line on stderr, whatever went wrong.
int report(const char* message, int exit_code) {
  std::fflush(stdout);
  std::string line;
  for (const char* c = message; *c; ++c) line += *c == '\n' ? ' ' : *c;
  std::fprintf(stderr, "lockstep: %s\n", line.c_str());
  return exit_code;
}

int run(int argc, char** argv) {
  const lockstep::tools::CommandLine command(argv, argv + argc);
  CLI::App app("Data-parallel training, step by step: scatter, replicate, all-reduce, measured.",
               "lockstep");
  app.set_version_flag("--version", std::string("lockstep ") + lockstep::tools::kVersion);
  app.require_subcommand(1);
  lockstep::tools::add_train_command(app, command);
  lockstep::tools::add_compare_command(app, command);
  lockstep::tools::add_bench_command(app);
  lockstep::tools::add_devices_command(app);
  lockstep::tools::add_env_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report((std::string(error.what()) + " (see lockstep --help)").c_str(), 2);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const lockstep::Error& error) {
    return report(error.what(), lockstep::exit_code(error.code()));
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}
