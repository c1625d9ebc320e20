#include "tools/check/report_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/check/reference_step.h"

namespace lockstep::tools {
namespace {

void judge_replicas(std::size_t step, const std::vector<RankReport>& reports,
                    std::vector<std::uint64_t> RankReport::*digests, const KeptTensors& mine,
                    const char* what, std::vector<Finding>& found) {
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

}  // namespace

ReportJudge::ReportJudge(const TrainingTask& task, const parallel::Strategy& strategy,
                         RunFindings& findings)
    : task_(task),
      strategy_(strategy),
      findings_(findings),
      is_exact_(task.sampler == Sampler::exact),
      curve_(task.num_steps - task.first_step()),
      watch_(task.data->train.num_classes) {}

void ReportJudge::judge(std::size_t step, const std::vector<RankReport>& reports,
                        const StepTensors& mine) {
  std::vector<Finding> found;
  for (const RankReport& report : reports) {
    found.insert(found.end(), report.findings.begin(), report.findings.end());
  }
  judge_replicas(step, reports, &RankReport::before, mine.before, "before the step", found);
  if (is_exact_) judge_gradient(step, reports[0].from_one_device, found);
  judge_replicas(step, reports, &RankReport::gradients, mine.gradients, "its gradient", found);
  judge_replicas(step, reports, &RankReport::after, mine.after, "after the step", found);
  judge_losses(step, reports, found);
  judge_parts_of_steps(step, reports, found);
  for (const Finding& finding : found) {
    if (findings_.failure && findings_.failure->step <= finding.step) continue;
    if (!explosion_ || finding.step < *explosion_) findings_.failure = finding;
  }
}

void ReportJudge::judge_gradient(std::size_t step, const FromOneDevice& compared,
                                 std::vector<Finding>& found) {
  if (std::isnan(compared.loss)) {
    explode(step, fmt::format("at step {} one device's gradients overflow", step));
    return;
  }
  findings_.gradient_checks.push_back(compared.check);
  found.insert(found.end(), compared.failure.begin(), compared.failure.end());
}

void ReportJudge::judge_parts_of_steps(std::size_t step, const std::vector<RankReport>& reports,
                                       std::vector<Finding>& found) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : strategy_.module()->named_parameters()) {
    names.push_back(name);
  }
  const std::size_t num_steps = reports[0].parts.size();
  for (std::size_t i = 0; i < num_steps; ++i) {
    std::vector<StepParts> of_ranks;
    for (const RankReport& report : reports) of_ranks.push_back(report.parts.at(i));
    const std::optional<Finding> finding = judge_parts(
        step + 1 - num_steps + i, of_ranks, names,
        strategy_.is_in_parts() ? Shares::pieces : Shares::whole,
        task_.optimizer.clip_norm ? Clipping::common_factor : Clipping::none,
        gradient_limit(task_.dtype, DeviceType::cpu, kernels::MatmulPrecision::highest));
    if (finding) found.push_back(*finding);
  }
}

void ReportJudge::judge_losses(std::size_t step, const std::vector<RankReport>& reports,
                               std::vector<Finding>& found) {
  const auto add = [](StepLoss& to, const StepLoss& loss) {
    to.sum += loss.sum;
    to.num_rows += loss.num_rows;
  };
  std::map<std::size_t, StepLoss> of_steps;
  epoch_loss_ = {};
  for (const RankReport& report : reports) {
    for (const StepLoss& loss : report.losses) add(of_steps[loss.step], loss);
    add(epoch_loss_, report.epoch_loss);
  }
  for (const auto& [number, loss] : of_steps) {
    if (const auto warning = watch_.see(number, mean_of(loss))) explode(number, *warning);
    curve_.add({number - task_.first_step(), loss.num_rows, loss.sum});
  }
  if (!is_exact_) return;
  const StepLoss& all = of_steps[step];
  const double expected = reports[0].from_one_device.loss;
  if (std::abs(mean_of(all) - expected) <= reports[0].from_one_device.loss_limit) return;
  found.push_back({"loss", step, 0, "all",
                   fmt::format("the mean over all ranks' rows is {:.9g}, one device's on the same "
                               "weights and rows {:.9g}",
                               mean_of(all), expected)});
}

void ReportJudge::explode(std::size_t step, const std::string& why) {
  if (explosion_ && *explosion_ <= step) return;
  explosion_ = step;
  findings_.exploded = why;
}

void ReportJudge::judge_epoch(std::size_t last_step, double mean_loss) {
  const double expected = mean_of(epoch_loss_);
  if (findings_.failure || explosion_) return;
  if (std::abs(mean_loss - expected) <= 1e-9 * std::max(1.0, std::abs(expected))) return;
  findings_.failure = {"loss", last_step, strategy_.rank(), "all",
                       fmt::format("the run reports a mean loss of {:.9g}, but over all ranks' "
                                   "rows it is {:.9g}",
                                   mean_loss, expected)};
}

}  // namespace lockstep::tools
