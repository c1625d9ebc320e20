#include "tools/grading/places.h"

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/grading/build_places.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;

std::string find_compiler() {
  const launch::Environment environment = launch::current_environment();
  if (const auto named = launch::find_variable(environment, "CXX")) {
    return launch::find_program(*named, environment, "CXX");
  }
  if (fs::exists(kCompiler)) return kCompiler;
  return launch::find_program("c++", environment, "grade");
}

void require_there(const fs::path& path, const char* what) {
  require(
      fs::exists(path), ErrorCode::Io, "grade",
      "expected {} at {}, found nothing; cmake --build build/release --target lab_host builds it, "
      "or install the package with its tutorials",
      what, path.string());
}

}  // namespace

Places find_places() {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  if (fs::exists(own / "lab_host")) {
    const fs::path made = fs::path(kBuildFolder) / "bin";
    require(fs::weakly_canonical(own) == fs::weakly_canonical(made), ErrorCode::Io, "grade",
            "this build was made in {} and now lies in {}; configure and build it there again",
            made.string(), own.string());
  }
  Places places{own / "lab_host", fs::path(kBuildFolder) / "labs",
                fs::path(kSourceFolder) / "tutorials/labs", kSourceFolder, find_compiler()};
  if (!fs::exists(places.host)) {
    places.host = (own / kInstalledPrograms / "lab_host").lexically_normal();
    places.modules = places.host.parent_path();
    places.labs = (own / kInstalledLabs).lexically_normal();
    places.headers = (own / kInstalledHeaders).lexically_normal();
  }
  require_there(places.host, "the program lab_host");
  require_there(places.labs / "lab.h", "the labs' headers");
  require_there(places.headers / "engine", "the engine's headers");
  return places;
}

}  // namespace lockstep::tools::grading
