// lockstep: data-parallel training, step by step. See --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/standard_streams.h"
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

// CLI11 takes an empty value for "not given"; here it is a mistake, usually an unset shell
// variable.
void require_no_empty_values(const lockstep::tools::CommandLine& command) {
  for (std::size_t i = 1; i < lockstep::tools::num_own_words(command); ++i) {
    const std::string& word = command[i];
    const bool ends_open = word.starts_with("--") && word.ends_with("=");
    lockstep::require(!word.empty() && !ends_open, lockstep::ErrorCode::Usage,
                      ends_open ? word.substr(0, word.size() - 1) : command[i - 1],
                      "the value is empty; give one, or leave the flag out");
  }
}

// CLI11's message, but for a subcommand that is missing or unknown: then which there are.
std::string describe(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App* parent = &app;
  while (!parent->get_subcommands().empty()) parent = parent->get_subcommands().front();
  const std::vector<const CLI::App*> commands = parent->get_subcommands({});
  if (commands.empty()) return std::string(error.what()) + " (see lockstep --help)";
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  const std::vector<std::string> unknown = parent->remaining();
  return fmt::format("{}; use one of: {} (see lockstep --help)",
                     unknown.empty() ? "a command is missing"
                                     : fmt::format("unknown command '{}'", unknown.front()),
                     fmt::join(names, ", "));
}

int run(int argc, char** argv) {
  const lockstep::tools::CommandLine command(argv, argv + argc);
  CLI::App app("Data-parallel training, step by step: scatter, replicate, all-reduce, measured.",
               "lockstep");
  app.set_version_flag("--version", std::string("lockstep ") + lockstep::tools::kVersion);
  app.require_subcommand(1);
  int exit_code = 0;
  lockstep::tools::add_train_command(app, command, exit_code);
  lockstep::tools::add_compare_command(app, command);
  lockstep::tools::add_bench_command(app, command, exit_code);
  lockstep::tools::add_devices_command(app);
  lockstep::tools::add_env_command(app);
  lockstep::tools::add_check_gradients_command(app);
  lockstep::tools::add_with_devices_command(app, command);
  lockstep::tools::add_run_command(app, command, exit_code);
  require_no_empty_values(command);
  try {
    app.parse(static_cast<int>(lockstep::tools::num_own_words(command)), argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report(describe(error, app).c_str(), 2);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::launch::occupy_closed_standard_streams();
  try {
    return run(argc, argv);
  } catch (const lockstep::Error& error) {
    return report(error.what(), lockstep::exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    return report("out of memory; use a smaller --model, --batch or --dataset", 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}
