// NVML, loaded while the program runs. A machine without an NVIDIA driver is a fact to report, not
// an error.
#pragma once

#include <string>

#include "engine/runtime/nvml/api.h"
#include "engine/runtime/shared_library.h"

namespace lockstep::nvml {

// One open connection to NVML, from construction to destruction; any number may exist at once.
class Library {
 public:
  // Loads libnvidia-ml.so.1, or what LOCKSTEP_NVML_LIBRARY names, and initialises it. Does not
  // throw where that fails: problem() says why.
  Library();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool available() const { return problem_.empty(); }
  // Why NVML cannot be asked, and what to do; empty where it can.
  const std::string& problem() const { return problem_; }

  // REQUIRES: available().
  const Api& api() const { return api_; }

  // NVML's own words for a result: "Not Supported".
  std::string describe(Result result) const;

 private:
  runtime::SharedLibrary file_;
  Api api_;
  bool is_initialised_ = false;
  std::string problem_;
};

// Calls a function that an older library may lack: kFunctionNotFound then.
template <typename Function, typename... Args>
Result call(Function function, Args... args) {
  return function != nullptr ? function(args...) : kFunctionNotFound;
}

}  // namespace lockstep::nvml
