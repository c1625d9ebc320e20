#include "tools/watch/program.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/files.h"
#include "tools/watch/page.h"
#include "tools/watch/recorder.h"

namespace lockstep::watch {

void watch_program(const std::string& path, const std::string& program,
                   const std::function<void()>& body) {
  if (path.empty() || std::getenv("RANK") != nullptr) return body();
  AtomicFile file(std::filesystem::absolute(path), "--watch");  // the program may change its folder
  Recorder recorder(Numbers::no);
  body();
  StepRecording recording = recorder.take();
  const std::string about = fmt::format("step {} of its training", recording.step + 1);
  file.write(make_page({{program, about, std::move(recording), PageRecording::Rows::of_program}}));
  file.commit();
  fmt::print("watch: {}; open it in a browser\n", path);
}

}  // namespace lockstep::watch
