// A library that is loaded while the program runs, so that builds do not need it, and a program
// starts and does everything else on a machine without it. It stays loaded until the process ends,
// because its objects may be in use.
#pragma once

#include <string>

namespace lockstep::runtime {

// The file that an environment variable names, or else the usual one.
std::string library_path(const char* variable, const char* usual);

class SharedLibrary {
 public:
  // Loads a library by name or path. Does not throw on failure: see problem().
  explicit SharedLibrary(std::string path);

  const std::string& path() const { return path_; }
  bool is_loaded() const { return handle_ != nullptr; }
  // Why it is not loaded, in the loader's words, which name it; empty if it is loaded.
  const std::string& problem() const { return problem_; }

  // The function of this name, or null if the library has none. REQUIRES: is_loaded().
  template <typename Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol) const;

  std::string path_;
  void* handle_;
  std::string problem_;
};

// Loads the file that the environment variable names; without one, the usual library where the
// loader finds it, or else the file that was there when this was built ("": none was).
SharedLibrary load_library(const char* variable, const char* usual, const char* at_build);

}  // namespace lockstep::runtime
