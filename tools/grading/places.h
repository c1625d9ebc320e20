// Where the grader finds what it needs, in a build folder and installed.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::tools::grading {

struct Places {
  std::filesystem::path host;     // the program lab_host
  std::filesystem::path modules;  // the folder with lab_NN_name.so
  std::filesystem::path labs;     // the folder with lab.h and NN_name/
  std::filesystem::path headers;  // the engine's, to be included as "engine/..."
  std::string compiler;           // its path
};

// The compiler is the one in the variable CXX, else the one that built this program, else c++.
// Throws Error{Io} that says what is missing, and how to get it.
Places find_places();

}  // namespace lockstep::tools::grading
