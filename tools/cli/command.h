// The commands of the program `lockstep` and their flags, over CLI11. That library is slow to
// compile, so only command.cpp includes it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::tools {

// A flag of a command: a handle, valid while its command lives.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag one_of(const std::vector<std::string>& words) const;  // accepts only these values
  Flag in_range(int first, int last) const;
  Flag excludes(Flag other) const;
  Flag needs(Flag other) const;
  Flag separated_by(char delimiter) const;  // several values in one word
  Flag value_may_miss() const;              // `-c` alone means `-c ""`
  Flag required() const;
  Flag hidden() const;  // left out of --help

 private:
  CLI::Option* option_;
};

// A command, or the program: it has flags, and commands below it. A handle, like Flag.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_command(const std::string& name, const std::string& description);
  void require_command();  // of those below this one

  // names: "--devices", or several: "-b,--minbytes". value must live as long as the command; its
  // value is the default, which --help shows unless it is empty. T: std::string,
  // std::vector<std::string>, int, double, std::uint64_t, std::optional of int or double.
  template <typename T>
  Flag add_option(const std::string& names, T& value, const std::string& help);
  Flag add_flag(const std::string& names, bool& value, const std::string& help);
  void footer(const std::string& text);

  // The action runs after the command line is read, if it names this command.
  void on_run(std::function<void()> action);

  Flag find_flag(const std::string& name) const;  // REQUIRES: it was added
  bool was_said(const std::string& flag) const;
  std::vector<std::string> said_flags() const;  // names of the flags that the user gave

 protected:
  CLI::App* app_;
};

// The program itself.
class Program : public Command {
 public:
  Program(const std::string& name, const std::string& version, const std::string& description);
  Program(Program&&) = delete;
  ~Program();

  // Reads the words after the program's name, and runs the command that they name or prints the
  // help that they ask for. Returns what is wrong with the words, or an empty text.
  std::string parse(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> owned_app_;
};

}  // namespace lockstep::tools
