// A library that is loaded while the program runs, so that builds do not need it, and a program
// starts and does everything else on a machine without it. It stays loaded until the process ends,
// because its objects may be in use.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace lockstep::runtime {

// The file that an environment variable names, or else the usual one.
std::string library_path(const char* variable, const char* usual);

struct SharedLibraryOptions {
  // Its errors are Error{code}, "[operation] <path> has no <symbol>: <advice>".
  ErrorCode code = ErrorCode::Device;
  std::string operation = "dlsym";
  std::string advice = "it is not the library that is needed";
};

class SharedLibrary {
 public:
  // Loads a library by name or path. Does not throw on failure: see problem().
  explicit SharedLibrary(std::string path, SharedLibraryOptions options = {});

  const std::string& path() const { return path_; }
  bool is_loaded() const { return handle_ != nullptr; }
  // Why it is not loaded, in the loader's words, which name it; empty if it is loaded.
  const std::string& problem() const { return problem_; }

  // Sets function to the one of this name, or to null if the library has none. REQUIRES:
  // is_loaded(), here and below.
  template <typename Function>
  void find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(symbol));
  }
  // The same, but throws if the library has none (SharedLibraryOptions).
  template <typename Function>
  void find_required(const char* symbol, Function*& function) const {
    find(symbol, function);
    require(function != nullptr, options_.code, options_.operation, "{} has no {}: {}", path_,
            symbol, options_.advice);
  }

 private:
  void* address_of(const char* symbol) const;

  std::string path_;
  SharedLibraryOptions options_;
  void* handle_;
  std::string problem_;
};

}  // namespace lockstep::runtime
