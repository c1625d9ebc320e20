#include "engine/runtime/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

namespace lockstep::runtime {

std::string library_path(const char* variable, const char* usual) {
  const char* path = std::getenv(variable);
  return path != nullptr && *path != '\0' ? path : usual;
}

SharedLibrary::SharedLibrary(std::string path)
    : path_(std::move(path)), handle_(dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!is_loaded()) problem_ = dlerror();
}

void* SharedLibrary::address_of(const char* symbol) const {
  return dlsym(handle_, symbol);
}

SharedLibrary load_library(const char* variable, const char* usual, const char* at_build) {
  SharedLibrary library(library_path(variable, usual));
  if (library.is_loaded() || library.path() != usual || *at_build == '\0') return library;
  SharedLibrary other(at_build);
  return other.is_loaded() ? other : library;
}

}  // namespace lockstep::runtime
