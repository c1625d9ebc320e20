// One submission's scratch folder: its source is compiled there, and its checks run there. Nothing
// of the submission's own folder is ever written to, or run.
#pragma once

#include <filesystem>
#include <string>

#include "tools/grading/places.h"
#include "tools/grading/sandbox.h"
#include "tools/grading/submissions.h"
#include "tools/ranks/temporary_folder.h"

namespace lockstep::tools::grading {

class Workshop {
 public:
  Workshop(const Places& places, const lab::Lab& lab);

  // Compiles the source alone: the lab's header is the grader's. Returns what is wrong with it;
  // empty: nothing.
  std::string build(const std::filesystem::path& source);

  // Hands the cases to the submission, in a process of its own. REQUIRES: it was built.
  RunEnd run(const nlohmann::json& cases, const RunLimits& limits) const;

 private:
  RunEnd compile() const;  // in the scratch folder

  const Places& places_;
  const lab::Lab& lab_;
  TemporaryFolder folder_;
};

}  // namespace lockstep::tools::grading
