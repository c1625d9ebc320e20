#include "tools/grading/workshop.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/grading/sandbox.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxSourceBytes = 1 << 20;
constexpr RunLimits kCompileLimits{.seconds = 40};
constexpr SandboxLimits kCompileSandbox{.cpu_seconds = 15, .memory_mib = 3072, .file_mib = 64};
constexpr SandboxLimits kCheckSandbox{.cpu_seconds = 3, .memory_mib = 1024, .file_mib = 0};

// As the submission's author knows its files: without the scratch folder.
std::string without(const std::string& folder, std::string text) {
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at)) {
    text.erase(at, folder.size());
  }
  return text;
}

std::string first_lines(const std::string& text, std::size_t num_lines) {
  std::size_t end = 0;
  for (; num_lines > 0 && end < text.size(); --num_lines) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return text.substr(0, std::min<std::size_t>(end, 4000));
}

}  // namespace

Workshop::Workshop(const Places& places, const lab::Lab& lab)
    : places_(places), lab_(lab), folder_("grade") {
  give_to_scratch_user(folder_.path());
}

std::string Workshop::build(const fs::path& source) {
  if (fs::file_size(source) > kMaxSourceBytes) return "the source has more than 1 MiB";
  const fs::path folder = folder_.path();
  try {
    write_file_atomically(folder / (lab_.name() + ".cpp"), read_text_file(source, "grade"));
  } catch (const Error& unreadable) {
    return std::string(unreadable.message());
  }
  // Of the labs' folder the headers alone: solutions lie there, too.
  const fs::path header = places_.labs / lab_.folder / (lab_.name() + ".h");
  for (const fs::path& given : {header, places_.labs / "lab.h", places_.labs / "rank.h"}) {
    fs::copy_file(given, folder / given.filename());
  }
  const RunEnd end = compile();
  if (end.how != RunEnd::How::exited) return "the compiler " + describe(end, kCompileLimits);
  if (end.code != 0 || !fs::is_regular_file(folder / "lab.so")) {
    return first_lines(without(folder.string() + "/", end.err), 20);
  }
  fs::copy_file(places_.modules / ("lab_" + lab_.folder + ".so"), folder / "subject.so");
  return {};
}

RunEnd Workshop::compile() const {
  const std::string& folder = folder_.path();
  const std::string headers = places_.headers.string();
  const fs::path compiler = fs::weakly_canonical(places_.compiler);
  std::vector<std::string> readable = {compiler.parent_path().parent_path().string()};
  for (const char* part : {"engine", "kernels", "datasets", "lockstep.h"}) {
    readable.push_back((places_.headers / part).string());
  }
  const std::vector<std::string> words = {places_.compiler,
                                          "-std=c++20",
                                          "-O1",
                                          "-fPIC",
                                          "-shared",
                                          "-Wall",
                                          "-pthread",
                                          "-fno-diagnostics-color",
                                          "-I",
                                          folder,
                                          "-I",
                                          headers,
                                          "-o",
                                          folder + "/lab.so",
                                          folder + "/" + lab_.name() + ".cpp"};
  const launch::Environment environment{{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                                        {"TMPDIR", folder},
                                        {"HOME", folder},
                                        {"CCACHE_DISABLE", "1"},
                                        {"LANG", "C"}};
  return run_limited(sandboxed(words, readable, folder, Folder::writable, kCompileSandbox),
                     environment, kCompileLimits);
}

RunEnd Workshop::run(const nlohmann::json& cases, const RunLimits& limits) const {
  const std::string& folder = folder_.path();
  write_file_atomically(fs::path(folder) / "inputs.json", cases.dump());
  const launch::Environment environment{
      {"PATH", "/usr/bin:/bin"}, {"LANG", "C"}, {"MALLOC_ARENA_MAX", "2"}};
  // The program's folder is beside that of its shared libraries.
  const std::string programs = places_.host.parent_path().parent_path().string();
  const std::vector<std::string> command = {places_.host.string(), folder};
  return run_limited(sandboxed(command, {programs}, folder, Folder::read_only, kCheckSandbox),
                     environment, limits);
}

}  // namespace lockstep::tools::grading
