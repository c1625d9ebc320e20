#include "tools/grading/workshop.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/grading/bubblewrap.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxSourceBytes = 1 << 20;
constexpr RunLimits kCompileLimits{.seconds = 40};

// The group and others may read it, or pass through it, which a scratch user needs.
void open_to_readers(const fs::path& path) {
  fs::permissions(path, fs::perms::group_read | fs::perms::others_read, fs::perm_options::add);
}

// As the submission's author knows its files: without the scratch folder.
std::string without(const std::string& folder, std::string text) {
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at)) {
    text.erase(at, folder.size());
  }
  return text;
}

void open_to_passers(const fs::path& folder) {
  fs::permissions(folder, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
}

void write_inputs(const fs::path& folder, const nlohmann::json& cases) {
  const fs::path path = folder / "inputs.json";
  write_file_atomically(path, cases.dump());
  open_to_readers(path);
}

std::string first_lines(const std::string& text, std::size_t num_lines) {
  std::size_t end = 0;
  for (; num_lines > 0 && end < text.size(); --num_lines) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return text.substr(0, std::min<std::size_t>(end, 4000));
}

// lab_host for a folder, with a wall around it where there is one.
std::vector<std::string> host_command(const Places& places, const std::string& action,
                                      const std::string& folder,
                                      const std::vector<std::string>& readable,
                                      const std::vector<std::string>& program) {
  std::vector<std::string> command{places.host.string(), action, folder};
  command.insert(command.end(), readable.begin(), readable.end());
  if (!program.empty()) command.push_back("--");
  command.insert(command.end(), program.begin(), program.end());
  if (!has_bubblewrap()) return command;
  std::vector<std::string> visible = readable;
  visible.push_back(places.host.parent_path().parent_path().string());  // its shared libraries too
  return inside_bubblewrap(command, folder, visible);
}

}  // namespace

std::vector<std::string> find_walls(const Places& places) {
  const TemporaryFolder folder("grade");
  open_to_passers(folder.path());
  write_inputs(folder.path(), {});
  const RunEnd end = run_limited(host_command(places, "probe", folder.path(), {}, {}), {}, {});
  require(end.how == RunEnd::How::exited && end.code == 0, ErrorCode::Io, "grade",
          "submissions cannot be locked in on this machine: {}", end.err.substr(0, 300));
  auto walls = nlohmann::json::parse(end.out).at("held_by").get<std::vector<std::string>>();
  if (has_bubblewrap()) walls.push_back("bubblewrap");
  return walls;
}

Workshop::Workshop(const Places& places, const lab::Lab& lab)
    : places_(places), lab_(lab), folder_("grade") {
  open_to_passers(folder_.path());
}

std::string Workshop::build(const fs::path& source) {
  if (fs::file_size(source) > kMaxSourceBytes) return "the source has more than 1 MiB";
  const fs::path folder = folder_.path();
  try {
    write_file_atomically(folder / source.filename(), read_text_file(source, "grade"));
  } catch (const Error& unreadable) {
    return std::string(unreadable.message());
  }
  // Of the labs' folder the headers alone: solutions lie there, too.
  const fs::path header = places_.labs / lab_.folder / (lab_.name() + ".h");
  for (const fs::path& given : {header, places_.labs / "lab.h", places_.labs / "rank.h"}) {
    fs::copy_file(given, folder / given.filename());
  }
  const RunEnd end = compile(source.filename());
  if (end.how != RunEnd::How::exited) return "the compiler " + describe(end, kCompileLimits);
  if (end.code != 0 || !fs::is_regular_file(folder / "lab.so")) {
    return first_lines(without(folder.string() + "/", end.err), 20);
  }
  fs::copy_file(places_.modules / ("lab_" + lab_.folder + ".so"), folder / "subject.so");
  open_to_readers(folder / "lab.so");
  open_to_readers(folder / "subject.so");
  return {};
}

RunEnd Workshop::compile(const fs::path& source) const {
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
                                          folder + "/" + source.string()};
  const launch::Environment environment{{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                                        {"TMPDIR", folder},
                                        {"HOME", folder},
                                        {"CCACHE_DISABLE", "1"},
                                        {"LANG", "C"}};
  return run_limited(host_command(places_, "compile", folder, readable, words), environment,
                     kCompileLimits);
}

RunEnd Workshop::run(const nlohmann::json& cases, const RunLimits& limits) const {
  write_inputs(folder_.path(), cases);
  const launch::Environment environment{{"PATH", "/usr/bin:/bin"}, {"LANG", "C"}};
  return run_limited(host_command(places_, "check", folder_.path(), {}, {}), environment, limits);
}

}  // namespace lockstep::tools::grading
