// Judges the reports of all ranks: the second half of RankChecks.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tools/verdict/rank_checks.h"

namespace lockstep::tools {

std::string Finding::text() const {
  return fmt::format("{}: step {}, rank {}, parameter {}: {}", check, step, rank, parameter, what);
}

void throw_failure(const RunFindings& findings, double loss) {
  if (std::isfinite(loss) || !findings.failure) return;
  fail(ErrorCode::Numeric, "compare", "{}; then the loss was no longer finite",
       findings.failure->text());
}

std::vector<RankChecks::Report> RankChecks::Report::exchange(std::vector<Report> mine,
                                                             comm::Communicator* communicator) {
  if (!communicator) return mine;
  std::vector<std::int64_t> words;
  mine[0].visit_bytes([&](const void* bytes, std::size_t size) {
    words.resize(words.size() + size / 8);
    std::memcpy(words.data() + words.size() - size / 8, bytes, size);
  });
  const std::vector<std::int64_t> all = comm::gather_numbers(words, *communicator);
  std::vector<Report> reports(all.size() / words.size(), mine[0]);
  const std::int64_t* next = all.data();
  for (Report& report : reports) {
    report.visit_bytes([&](void* bytes, std::size_t size) {
      std::memcpy(bytes, next, size);
      next += size / 8;
    });
  }
  return reports;
}

void RankChecks::judge(std::size_t step, const std::vector<Report>& reports) {
  std::vector<Finding> found;
  for (const Report& report : reports) {
    if (report.finding[0] == 0) continue;
    found.push_back(nlohmann::json::parse(report.finding.data()).get<Finding>());
  }
  if (is_exact_) judge_parts(reports, found);
  judge_replicas(step, reports, &Report::before, locals_[0].before, "before the step", found);
  if (is_exact_) judge_gradient(step, reports[0], found);
  judge_replicas(step, reports, &Report::gradients, locals_[0].gradients, "its gradient", found);
  judge_replicas(step, reports, &Report::after, locals_[0].after, "after the step", found);
  judge_losses(reports, found);
  num_judged_ = step + 1;
  for (const Finding& finding : found) {
    if (findings_.failure && findings_.failure->step <= finding.step) continue;
    if (!explosion_ || finding.step < *explosion_) findings_.failure = finding;
  }
}

// Checks that the parts of a batch follow each other without gaps and make up the whole.
void RankChecks::judge_parts(const std::vector<Report>& reports, std::vector<Finding>& found) {
  for (std::size_t i = 0; i < reports[0].seen.size(); ++i) {
    const std::size_t step = num_judged_ + i;
    const auto num_rows = static_cast<std::int64_t>(global_rows(step).size());
    std::int64_t next = 0;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      const Seen& seen = reports[rank].seen[i];
      if (models_.pipeline) next = 0;  // each stage has the whole batch
      if (seen.num_rows > 0 && seen.offset != next) {
        found.push_back({"rows", step, static_cast<int>(rank), "all",
                         fmt::format("the shard begins at row {} of the global batch, and those "
                                     "before it end at row {}",
                                     seen.offset, next)});
        return;
      }
      next += seen.num_rows;
    }
    if (next == num_rows) continue;
    found.push_back({"rows", step, static_cast<int>(reports.size()) - 1, "all",
                     fmt::format("the shards end at row {} of the global batch, which has {}", next,
                                 num_rows)});
    return;
  }
}

void RankChecks::judge_gradient(std::size_t step, const Report& report,
                                std::vector<Finding>& found) {
  if (!std::isfinite(report.loss)) {
    explode(step, fmt::format("at step {} one device's gradients overflow", step));
    return;
  }
  findings_.gradient_checks.push_back({step, report.gradient_error});
  if (report.gradient_error <= findings_.gradient_limit) return;
  found.push_back({"gradients", step, 0, all_names_[static_cast<std::size_t>(report.parameter)],
                   fmt::format("relative error {:.3g} against one device's gradient on the same "
                               "weights and rows, limit {:.0e}",
                               report.gradient_error, findings_.gradient_limit)});
}

void RankChecks::judge_replicas(std::size_t step, const std::vector<Report>& reports,
                                std::vector<std::uint64_t> Report::*digests,
                                const KeptTensors& mine, const char* what,
                                std::vector<Finding>& found) {
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    const auto [other, first] = std::ranges::mismatch(reports[rank].*digests, reports[0].*digests);
    if (other == (reports[rank].*digests).end()) continue;
    const auto tensor = static_cast<std::size_t>(other - (reports[rank].*digests).begin());
    found.push_back(
        {"replicas", step, static_cast<int>(rank), mine[tensor].first,
         fmt::format("{} differs from rank 0's; all ranks must hold the same bits", what)});
    return;
  }
}

void RankChecks::judge_losses(const std::vector<Report>& reports, std::vector<Finding>& found) {
  for (std::size_t i = 0; i < reports[0].seen.size(); ++i) {
    const std::size_t step = num_judged_ + i;
    Seen all;
    for (const Report& report : reports) {
      all.loss += report.seen[i].loss;
      all.loss_rows += report.seen[i].loss_rows;
    }
    epoch_loss_.loss += all.loss;
    epoch_loss_.loss_rows += all.loss_rows;
    const double mean = all.loss / all.loss_rows;
    if (const std::optional<std::string> warning = watch_.see(step, mean)) explode(step, *warning);
    if (!is_exact_ || i + 1 < reports[0].seen.size()) continue;
    const double limit = findings_.gradient_limit * std::max(1.0, std::abs(reports[0].loss));
    if (std::abs(mean - reports[0].loss) <= limit) continue;
    found.push_back({"loss", step, 0, "all",
                     fmt::format("the mean over all ranks' rows is {:.9g}, one device's on the "
                                 "same weights and rows {:.9g}",
                                 mean, reports[0].loss)});
  }
}

void RankChecks::explode(std::size_t step, const std::string& why) {
  if (explosion_ && *explosion_ <= step) return;
  explosion_ = step;
  findings_.exploded = why;
}

void RankChecks::after_epoch(std::size_t last_step, double mean_loss) {
  const Seen all = std::exchange(epoch_loss_, {});
  const double expected = all.loss / all.loss_rows;
  if (findings_.failure || explosion_) return;
  if (std::abs(mean_loss - expected) <= 1e-9 * std::max(1.0, std::abs(expected))) return;
  findings_.failure = {"loss", last_step, models_.first().rank, "all",
                       fmt::format("the run reports a mean loss of {:.9g}, but over all ranks' "
                                   "rows it is {:.9g}",
                                   mean_loss, expected)};
}

}  // namespace lockstep::tools
