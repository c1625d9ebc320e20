// lockstep learn: lists the numbered programs of the course in their order, which of them ended
// well here, and the next one.
#include <fmt/chrono.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "tools/commands/commands.h"
#include "tools/commands/course.h"
#include "tools/flags/command_line.h"
#include "tools/run/processes.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

// The day of each program's last good run: "2026-11-23". Its key is the name without the number,
// which changes when the course gets another order.
using PassedPrograms = std::map<std::string, std::string>;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
}

// $XDG_STATE_HOME/lockstep/learned, or ~/.local/state/lockstep/learned: a line "split_batch
// 2026-11-23" each.
fs::path progress_file() {
  const std::string state = variable("XDG_STATE_HOME");
  if (!state.empty()) return fs::path(state) / "lockstep" / "learned";
  const std::string home = variable("HOME");
  require(!home.empty(), ErrorCode::Usage, "learn",
          "neither XDG_STATE_HOME nor HOME is set; one of them says where progress is kept");
  return fs::path(home) / ".local" / "state" / "lockstep" / "learned";
}

bool is_number(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// "split_batch" of "04_split_batch", and of itself.
std::string without_number(const std::string& name) {
  const std::size_t end = name.find('_');
  return is_number(name.substr(0, end)) ? name.substr(end + 1) : name;
}

// Files of version 0.1 have names with the numbers of that time.
PassedPrograms read_progress(const fs::path& file) {
  PassedPrograms progress;
  std::ifstream lines(file);
  for (std::string program, day; lines >> program >> day;) {
    progress[without_number(program)] = day;
  }
  return progress;
}

void record_pass(const fs::path& file, const std::string& program) {
  PassedPrograms progress = read_progress(file);
  progress[without_number(program)] = today();
  std::string text;
  for (const auto& [name, day] : progress) text += fmt::format("{} {}\n", name, day);
  std::error_code ignored;  // writing reports the problem
  fs::create_directories(file.parent_path(), ignored);
  write_file_atomically(file, text);
}

// "04" of "04_split_batch".
std::string number_of(const CourseProgram& program) {
  return std::string(program.name).substr(0, 2);
}

// The program's file, which is beside this one.
fs::path find_tutorial(const CourseProgram& program) {
  const fs::path folder = fs::path(this_program()).parent_path();
  require(fs::exists(folder / program.name), ErrorCode::Io, "learn",
          "{} is not in '{}'; scripts/tutorial.sh {} builds it", program.name, folder.string(),
          number_of(program));
  return folder / program.name;
}

// Finds it by number, by name, or by the part of the name after the number.
const CourseProgram& find_program(const std::string& word) {
  const std::string number = word.size() == 1 ? "0" + word : word;
  std::vector<std::string> names;
  for (const CourseProgram& program : kCourse) {
    const std::string name = program.name;
    const bool is_meant = is_number(word) ? name.starts_with(number + "_")
                                          : name == word || without_number(name) == word;
    if (is_meant) return program;
    names.push_back(name);
  }
  fail(ErrorCode::Usage, "learn", "there is no program '{}' ({} to {}){}", word,
       names.front().substr(0, 2), names.back().substr(0, 2), did_you_mean(word, names));
}

// The program's chapter: of the built book, beside the build or installed with this program; else
// its Markdown.
std::string find_chapter(const std::string& name) {
  const fs::path folder = fs::path(this_program()).parent_path();
  for (const char* book : {"../../book", "../share/doc/lockstep/book"}) {
    const fs::path page = (folder / book / (name + ".html")).lexically_normal();
    if (fs::exists(page)) return page.string();
  }
  return "docs/book/" + name + ".md";
}

// The first program that has not ended well here yet.
const CourseProgram* next_program(const PassedPrograms& progress) {
  const auto* found = std::ranges::find_if(kCourse, [&](const CourseProgram& program) {
    return !progress.contains(without_number(program.name));
  });
  return found == std::end(kCourse) ? nullptr : found;
}

void print_next(const CourseProgram* next) {
  if (!next) {
    fmt::print("all programs have passed here; tutorials/README.md says what comes next\n");
    return;
  }
  fmt::print("next: {}\n  lockstep learn next\n", next->name);
}

// Prints how the chapter begins, and where it is, before its program runs.
void print_chapter(const CourseProgram& program) {
  if (*program.first_paragraph == '\0') return;
  fmt::print("{}\n\nThe chapter: {}\n\n", wrap(program.first_paragraph),
             find_chapter(std::string(program.name).substr(3)));
}

void print_course() {
  const PassedPrograms progress = read_progress(progress_file());
  int minutes = 0;
  fmt::print("{:<24} {:>3}  {}\n", "program", "min", "passed");
  for (const CourseProgram& program : kCourse) {
    const auto passed = progress.find(without_number(program.name));
    fmt::print("{:<24} {:>3}  {}\n", program.name, program.minutes,
               passed == progress.end() ? "-" : passed->second);
    fmt::print("  {}\n", wrap(program.question, kTerminalColumns, 2));
    minutes += program.minutes;
  }
  fmt::print("min: minutes to read and run it, {:.1f} hours in all\n", minutes / 60.0);
  print_next(next_program(progress));
}

// Returns the exit code. The program shares this one's terminal.
int run_and_wait(const fs::path& file, const CommandLine& flags) {
  std::string line = shell_quoted(file.string());
  for (const std::string& flag : flags) line += " " + shell_quoted(flag);
  std::fflush(nullptr);
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// wanted: next, a number or a name; empty: the list. flags: the program's own.
int learn(const std::string& wanted, const CommandLine& flags) {
  if (wanted.empty()) {
    print_course();
    return 0;
  }
  const fs::path file = progress_file();
  const CourseProgram* program =
      wanted == "next" ? next_program(read_progress(file)) : &find_program(wanted);
  if (!program) {
    print_next(nullptr);
    return 0;
  }
  // So that its "Now try" prints a command that works here.
  ::setenv("LOCKSTEP_LEARN", fmt::format("lockstep learn {} --", number_of(*program)).c_str(), 1);
  const fs::path executable = find_tutorial(*program);
  const bool asked_for_help = std::ranges::find(flags, "--help") != flags.end();
  if (!asked_for_help) print_chapter(*program);
  const int code = run_and_wait(executable, flags);
  if (code != 0 || asked_for_help) return code;
  record_pass(file, program->name);
  fmt::print("\n{} passed\n", program->name);
  print_next(next_program(read_progress(file)));
  return 0;
}

}  // namespace

void add_learn_command(CLI::App& program, const CommandLine& command, int& exit_code) {
  CLI::App& learn_command = *program.add_subcommand(
      "learn", "Run the programs of the course, and list which have passed here");
  auto wanted = std::make_shared<std::string>();
  learn_command.add_option(
      "program", *wanted,
      "the program to run: next, a number or a name (default: none, only the list)");
  learn_command.footer("Flags behind -- go to the program: lockstep learn 04 -- --rows 10");
  learn_command.callback([wanted, flags = words_behind_dashes(command), &exit_code] {
    exit_code = learn(*wanted, flags);
  });
}

}  // namespace lockstep::tools
