// Reads the command line of `lockstep` with CLI11, and says in one line what is wrong with it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::tools {

// Adds an option whose value has this name in --help, such as "FILE".
template <typename Value>
CLI::Option* add_option(CLI::App& command, const std::string& names, Value& value,
                        const std::string& value_name, const std::string& help) {
  return command.add_option(names, value, help)->type_name(value_name);
}

// Accepts only these values; the error proposes the one that is most like the word.
CLI::Validator one_of(const std::vector<std::string>& words);

// Accepts a whole number of at most 64 bits: CLI11 alone would misread -1 and larger numbers.
CLI::Validator whole_number();

// The names of the flags that the user gave.
std::vector<std::string> given_flags(const CLI::App& command);

// Reads the words after the program's name, and runs the command that they name or prints the help
// that they ask for. Returns what is wrong with the words, or an empty text.
std::string parse(CLI::App& program, std::vector<std::string> words);

}  // namespace lockstep::tools
