#include "tools/grading/submissions.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/grading/clean_text.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;  // folders below the one that is named

struct Source {
  fs::path path;
  const lab::Lab* lab = nullptr;
};

// Links are not followed: they could name any file of the teacher's.
std::vector<Source> sources_in(const fs::path& folder) {
  std::vector<Source> found;
  for (const lab::Lab& lab : lab::all_labs()) {
    const fs::path path = folder / (lab.name() + ".cpp");
    std::error_code unreadable;
    if (fs::symlink_status(path, unreadable).type() == fs::file_type::regular) {
      found.push_back({path, &lab});
    }
  }
  return found;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename();
    if (entry.symlink_status().type() == fs::file_type::directory && !name.starts_with('.') &&
        name != "teacher") {
      found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

Submission make_submission(const std::string& name, const std::vector<Source>& sources) {
  Submission submission{clean_line(name), {}, nullptr, {}};
  if (sources.size() == 1) {
    submission.source = sources[0].path;
    submission.lab = sources[0].lab;
  } else if (sources.empty()) {
    submission.problem = "holds no lab's source, such as ring_all_reduce.cpp";
  } else {
    submission.problem =
        fmt::format("holds {} and {}: expected one lab in a folder",
                    sources[0].path.filename().string(), sources[1].path.filename().string());
  }
  return submission;
}

void collect(const fs::path& folder, const std::string& name, int depth,
             std::vector<Submission>& list) {
  const std::vector<Source> sources = sources_in(folder);
  const std::vector<fs::path> inner = folders_in(folder);
  if (!sources.empty() || inner.empty() || depth == kDeepest) {
    list.push_back(make_submission(name, sources));
    return;
  }
  for (const fs::path& path : inner) {
    collect(path, name + "/" + path.filename().string(), depth + 1, list);
  }
}

}  // namespace

Submissions find_submissions(const fs::path& folder) {
  require(fs::is_directory(folder), ErrorCode::Usage, "grade",
          "expected a folder with a lab's source, found no folder {}",
          shell_quoted(folder.string()));
  Submissions result;
  const std::vector<Source> sources = sources_in(folder);
  if (!sources.empty()) {
    fs::path whole = fs::absolute(folder).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();
    result.list.push_back(make_submission(whole.filename().string(), sources));
    return result;
  }
  result.kind = Submissions::Kind::batch;
  for (const fs::path& path : folders_in(folder)) {
    collect(path, path.filename().string(), 1, result.list);
  }
  require(!result.list.empty(), ErrorCode::Usage, "grade",
          "expected a lab's source in {}, such as ring_all_reduce.cpp, or folders with one each; "
          "found neither",
          shell_quoted(folder.string()));
  return result;
}

}  // namespace lockstep::tools::grading
