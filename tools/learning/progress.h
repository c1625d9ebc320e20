// Which programs of the course this user has run here, and they ended well.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::tools {

// By program, the day of the last run that ended well: "2026-11-23".
using PassedPrograms = std::map<std::string, std::string>;

// $XDG_STATE_HOME/lockstep/learned, or ~/.local/state/lockstep/learned: a line "NAME DAY" each.
// Throws Error{Usage} when neither variable is set.
std::filesystem::path progress_file();

// Empty where there is no such file. Throws Error{Io} that names the line which is none.
PassedPrograms read_progress(const std::filesystem::path& file);

// Adds today. Throws Error{Io} when the file cannot be written.
void record_pass(const std::filesystem::path& file, const std::string& program);

}  // namespace lockstep::tools
