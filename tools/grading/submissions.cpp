#include "tools/grading/submissions.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;  // folders below the one that is named

// The folder's entries of one type, sorted. Links are not followed: they could name any file of the
// teacher's.
std::vector<fs::path> entries_in(const fs::path& folder, fs::file_type type) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (entry.symlink_status().type() == type) found.push_back(entry.path());
  }
  std::ranges::sort(found, [](const fs::path& a, const fs::path& b) {
    return ::strverscmp(a.c_str(), b.c_str()) < 0;  // student2 before student10
  });
  return found;
}

bool is_source_of(const lab::Lab& lab, const fs::path& file) {
  static const std::regex renamed(R"(( ?\([0-9]+\)|-[0-9]+|( -)? [Cc]opy)?)");
  const std::string stem = file.stem().string();
  return file.extension() == ".cpp" && stem.starts_with(lab.name()) &&
         std::regex_match(stem.substr(lab.name().size()), renamed);
}

// One submission for each lab of which there are sources.
std::vector<Submission> submissions_in(const fs::path& folder, const std::string& name) {
  const std::vector<fs::path> files = entries_in(folder, fs::file_type::regular);
  std::vector<Submission> found;
  for (const lab::Lab& lab : lab::all_labs()) {
    Submission submission{clean_line(name), {}, &lab, {}};
    for (const fs::path& file : files) {
      if (!is_source_of(lab, file)) continue;
      if (!submission.source.empty()) {
        submission.problem = clean_line(fmt::format("holds {} and {}: expected one source of a lab",
                                                    submission.source.filename().string(),
                                                    file.filename().string()));
      }
      submission.source = file;
    }
    if (!submission.source.empty()) found.push_back(std::move(submission));
  }
  return found;
}

void collect(const fs::path& folder, const std::string& name, int depth,
             std::vector<Submission>& list) {
  const std::vector<Submission> found = submissions_in(folder, name);
  list.insert(list.end(), found.begin(), found.end());
  if (!found.empty()) return;
  std::vector<fs::path> inner = entries_in(folder, fs::file_type::directory);
  std::erase_if(inner, [](const fs::path& path) {
    const std::string own = path.filename().string();
    return own.starts_with('.') || own == "teacher";
  });
  if (depth > 0 && (inner.empty() || depth == kDeepest)) {
    list.push_back(
        {clean_line(name), {}, nullptr, "holds no lab's source, such as ring_all_reduce.cpp"});
    return;
  }
  for (const fs::path& path : inner) {
    const std::string own = path.filename().string();
    collect(path, name.empty() ? own : name + "/" + own, depth + 1, list);
  }
}

}  // namespace

Submissions find_submissions(const fs::path& folder) {
  require(fs::is_directory(folder), ErrorCode::Usage, "grade",
          "expected a folder with a lab's source, found no folder {}",
          shell_quoted(folder.string()));
  fs::path whole = fs::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  Submissions result{Submissions::Kind::one, submissions_in(folder, whole.filename().string())};
  if (!result.list.empty()) return result;
  result.kind = Submissions::Kind::batch;
  collect(folder, "", 0, result.list);
  require(!result.list.empty(), ErrorCode::Usage, "grade",
          "expected a lab's source in {}, such as ring_all_reduce.cpp, or folders with one each; "
          "found neither",
          shell_quoted(folder.string()));
  return result;
}

std::string clean_text(std::string_view text) {
  using nlohmann::json;
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

std::string clean_line(std::string_view text) {
  constexpr std::size_t kMostBytes = 300;
  std::string line(text.substr(0, kMostBytes));
  if (text.size() > kMostBytes) line += "...";
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return clean_text(line);
}

}  // namespace lockstep::tools::grading
