#include "tools/grading/grade.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "engine/core/error.h"
#include "engine/runtime/wait.h"
#include "tools/grading/clean_text.h"
#include "tools/grading/judge_answers.h"
#include "tools/grading/secret.h"
#include "tools/grading/workshop.h"

namespace lockstep::tools::grading {
namespace {

// Of a check: a solution needs a tenth of a second, and on a crowded machine it may wait for a
// core; one that loops is stopped by its processor time before (lab_host).
constexpr double kCheckSeconds = 10;
// No check of a submission begins later: one that sleeps in all of them is not waited for each
// time.
constexpr double kSubmissionSeconds = 12;

// Where there is no secret: of visible checks, whose inputs are the same for everybody.
constexpr const char* kPublicSeed = "visible checks";

std::vector<CheckResult> wanted_checks(const lab::Lab& lab, bool with_hidden) {
  std::vector<CheckResult> results;
  for (const lab::Check& check : lab.checks) {
    if (check.shown == lab::Shown::hidden && !with_hidden) continue;
    results.push_back({&check, 0, "was not run", {}});
  }
  return results;
}

void run_check(const Workshop& workshop, const lab::Lab& lab, const std::string& secret,
               const RunLimits& limits, CheckResult& result) {
  const lab::Check& check = *result.check;
  const bool is_hidden = check.shown == lab::Shown::hidden;
  Rng rng = rng_of(is_hidden ? secret : kPublicSeed, lab, check);
  const std::vector<lab::json> cases = check.draw(rng);
  const RunEnd end = workshop.run(cases, limits);
  result.outcome = judge_answers(check, cases, end, limits);
  if (result.passed()) {
    result.points = check.points;
  } else if (!is_hidden) {
    result.printed =
        clean_text(end.err.substr(0, 2000));  // what a hidden check's inputs were stays hidden
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

int Grade::points() const {
  int sum = 0;
  for (const CheckResult& result : results) sum += result.points;
  return sum;
}

int Grade::possible_points() const {
  int sum = 0;
  for (const CheckResult& result : results) sum += result.check->points;
  return sum;
}

Grade grade(const Places& places, const Submission& submission,
            const std::optional<std::string>& secret) {
  Grade result{submission, submission.problem, {}};
  if (submission.lab == nullptr) return result;
  result.results = wanted_checks(*submission.lab, secret.has_value());
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
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < submissions.size(); i = next++) {
      try {
        grades[i] = grade(places, submissions[i], secret);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        next = submissions.size();
      }
    }
  };
  const std::size_t num_cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < std::min(num_cores, submissions.size()); ++i) {
    threads.emplace_back(work);
  }
  threads.clear();
  if (failure) std::rethrow_exception(failure);
  return grades;
}

}  // namespace lockstep::tools::grading
