#include "tools/grading/grade.h"

#include <fmt/format.h>
#include <string.h>

#include <openssl/evp.h>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "engine/runtime/wait.h"
#include "tools/grading/sandbox.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;  // levels of folders below the named one

// The folder's entries of one type, sorted. Links are not followed, because they could lead to any
// of the teacher's files.
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

// One submission for each lab that has sources.
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

namespace {

using lab::json;

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Says what is wrong with one case; empty if it is right. Notes in the check's result whether it
// was the judge that said so.
std::string judge_case(CheckResult& check, const json& inputs, const json& result) {
  if (!result.is_object()) return "the answer does not have the form that the lab asks for";
  if (const std::string to_do = text_of(result, "not_done"); !to_do.empty()) {
    return "to do: " + to_do;
  }
  if (result.contains("threw")) return "threw: " + text_of(result, "threw");
  if (!result.contains("answer")) return "gave no answer";
  try {
    if (check.check->play) check.played = check.check->play(inputs, result.at("answer"));
    std::string wrong = check.check->judge(inputs, result.at("answer"));
    check.is_wrong_answer = !wrong.empty();
    if (wrong.empty() && check.check->reached) {
      check.reached = check.check->reached(inputs, result.at("answer"));
    }
    return wrong;
  } catch (const std::exception&) {
    return "the answer does not have the form that the lab asks for";
  }
}

std::string judge_report(CheckResult& check, const std::vector<json>& cases, const json& report) {
  if (const std::string problem = text_of(report, "problem"); !problem.empty()) return problem;
  const auto answers = report.find("cases");
  if (answers == report.end() || !answers->is_array()) return "gave no answer";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i >= answers->size()) return "gave no answer";
    const std::string wrong = judge_case(check, cases[i], (*answers)[i]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// Says in one line what went wrong; empty if the check is passed. A submission controls its output,
// so a check is passed only if the answers to all cases are right.
std::string judge_answers(CheckResult& check, const std::vector<json>& cases, const ChildEnd& end,
                          const ChildLimits& limits) {
  if (end.how != ChildEnd::How::exited) return describe(end, limits);
  const json report = json::parse(end.out, nullptr, false);
  if (report.is_object()) return clean_line(judge_report(check, cases, report));
  if (end.code == 0) return "ended before it gave an answer";
  return "gave no answer: it " + describe(end, limits);
}

// Gives the same numbers for the same secret, lab and check, and others for any other.
Rng rng_of(const std::string& secret, const lab::Lab& lab, const lab::Check& check) {
  const std::string text = secret + '\0' + lab.folder + '\0' + check.name;
  unsigned char digest[EVP_MAX_MD_SIZE];
  const bool ok = EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha256(), nullptr) == 1;
  require(ok, ErrorCode::State, "grade", "OpenSSL cannot compute SHA-256");
  std::uint64_t numbers[2];
  std::memcpy(numbers, digest, sizeof numbers);
  return Rng(numbers[0], numbers[1]);
}

// A solution's check needs a tenth of a second, but may wait for a core on a crowded machine. A
// loop is stopped earlier, by its processor time (lab_host).
constexpr double kCheckSeconds = 10;
// No check begins later than this, so a submission that sleeps in every check does not cost the
// full time for each.
constexpr double kSubmissionSeconds = 12;

// Visible checks have the same inputs for every student.
constexpr const char* kPublicSeed = "visible checks";

std::vector<CheckResult> wanted_checks(const lab::Lab& lab, bool with_hidden) {
  std::vector<CheckResult> results;
  for (const lab::Check& check : lab.checks) {
    if (check.shown == lab::Shown::hidden && !with_hidden) continue;
    results.push_back({&check, 0, "was not run", {}, {}, {}});
  }
  return results;
}

void run_check(const Workshop& workshop, const lab::Lab& lab, const std::string& secret,
               const ChildLimits& limits, CheckResult& result) {
  const lab::Check& check = *result.check;
  const bool is_hidden = check.shown == lab::Shown::hidden;
  Rng rng = rng_of(is_hidden ? secret : kPublicSeed, lab, check);
  const std::vector<lab::json> cases = check.draw(rng);
  const ChildEnd end = workshop.run(cases, limits);
  result.outcome = judge_answers(result, cases, end, limits);
  if (result.passed()) {
    result.points = check.points;
  } else if (!is_hidden) {
    result.printed = clean_text(end.err.substr(0, 2000));  // a hidden check's inputs stay hidden
  }
}

void run_checks(const Workshop& workshop, const std::string& secret, Grade& grade) {
  const runtime::Deadline deadline = runtime::deadline_after(kSubmissionSeconds);
  for (CheckResult& result : grade.results) {
    if (runtime::has_passed(deadline)) {
      result.outcome = "was not run: the checks before it took too long";
      continue;
    }
    run_check(workshop, *grade.submission.lab, secret, {.seconds = kCheckSeconds}, result);
  }
}

}  // namespace

std::string read_secret(const std::filesystem::path& folder) {
  std::string secret = read_text_file(folder / "secret", "--hidden");
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  require(secret.size() >= 16, ErrorCode::Usage, "--hidden",
          "expected a secret of at least 16 letters in {}, found {}", (folder / "secret").string(),
          secret.size());
  return secret;
}

Points Grade::points() const {
  Points sum;
  for (const CheckResult& result : results) sum += {result.points, result.check->points};
  return sum;
}

Grade grade(const Places& places, const Submission& submission,
            const std::optional<std::string>& secret) {
  Grade result{submission, submission.problem, {}};
  if (submission.lab == nullptr) return result;
  result.results = wanted_checks(*submission.lab, secret.has_value());
  if (!result.problem.empty()) return result;
  try {
    Workshop workshop(places, *submission.lab);
    result.problem = clean_text(workshop.build(submission.source));
    if (result.problem.empty()) run_checks(workshop, secret.value_or(""), result);
  } catch (const std::filesystem::filesystem_error& unreadable) {
    result.problem = clean_line(unreadable.what());
  }
  return result;
}

std::vector<Grade> grade_all(const Places& places, const std::vector<Submission>& submissions,
                             const std::optional<std::string>& secret) {
  std::vector<Grade> grades(submissions.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < submissions.size(); i = next++) {
      grades[i] = grade(places, submissions[i], secret);
    }
  };
  const std::size_t num_cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::future<void>> workers;
  for (std::size_t i = 0; i < std::min(num_cores, submissions.size()); ++i) {
    workers.push_back(std::async(std::launch::async, work));
  }
  for (std::future<void>& worker : workers) worker.get();
  return grades;
}

}  // namespace lockstep::tools::grading
