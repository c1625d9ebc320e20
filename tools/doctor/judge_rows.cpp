// Each row is used once per epoch, by one rank, and each epoch has another order.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

using Rows = std::vector<std::uint64_t>;

// The rows of a step, in order; empty if unknown.
Rows rows_of(const StepRecord& step) {
  Rows rows;
  for (const auto& [pass, losses] : step.passes) {
    for (const LossRecord& loss : losses) {
      if (loss.hashes.size() != loss.num_rows) return {};
      rows.insert(rows.end(), loss.hashes.begin(), loss.hashes.end());
    }
  }
  return rows;
}

// How many different rows of a are also in b.
std::size_t count_shared(const Rows& a, const Rows& b) {
  const std::set<std::uint64_t> of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
  return static_cast<std::size_t>(
      std::ranges::count_if(of_a, [&](std::uint64_t row) { return of_b.contains(row); }));
}

// Reports at least half of the rows, because padding repeats single ones.
std::optional<Finding> judge_overlap(const Training& training, std::size_t number) {
  std::vector<Rows> rows;
  for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
    rows.push_back(rows_of(training.step(rank, number)));
  }
  for (std::size_t rank = 1; rank < rows.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      const std::size_t shared = count_shared(rows[rank], rows[other]);
      const std::size_t smaller = std::min(rows[rank].size(), rows[other].size());
      if (shared < 2 || 2 * shared < smaller) continue;
      return Finding{
          "own-rows",
          fmt::format("in step {} rank {} trains on {} of the same rows as rank {}, of {}",
                      training.step(0, number).step, rank, shared, other, smaller),
          "each row of a batch belongs to one rank, else n ranks do the work of fewer",
          "the rank and world size that the sampler is given, and who cuts the batch"};
    }
  }
  return {};
}

// All ranks of a group must cut one order of the rows, and each take its own part.
std::optional<Finding> judge_sampler(const SamplerRecord& sampler, const SamplerRecord& first) {
  const Origin& by = sampler.origin;
  std::string found;
  if (sampler.of_world != static_cast<std::uint64_t>(by.world_size)) {
    found = fmt::format("the sampler cuts {} rows for {} ranks, and {} train", sampler.samples,
                        sampler.of_world, by.world_size);
  } else if (sampler.of_rank != static_cast<std::uint64_t>(by.rank)) {
    found =
        fmt::format("rank {} asks the sampler for the rows of rank {}", by.rank, sampler.of_rank);
  } else if (sampler.shuffled && sampler.seed != first.seed) {
    found = fmt::format("rank {} shuffles {} rows with seed {} and rank {} with seed {}", by.rank,
                        sampler.samples, sampler.seed, first.origin.rank, first.seed);
  } else {
    return {};
  }
  return Finding{"own-rows", found, "the ranks' parts are all rows, and no row is in two of them",
                 "the rank, world size and seed that the sampler is given: only the rank differs"};
}

// The first sampler of each rank tells; a rank's own samplers, of one rank, do not count.
void judge_samplers(const Records& records, Findings& findings) {
  using Asked = std::tuple<std::string, std::string, std::uint64_t>;  // group, kind, rows
  std::map<Asked, std::map<int, const SamplerRecord*>> asked;
  for (const SamplerRecord& sampler : records.samplers) {
    const Origin& by = sampler.origin;
    if (by.group.empty() || by.world_size == 1 || sampler.of_world == 1) continue;
    asked[{by.group, sampler.kind, sampler.samples}].try_emplace(by.rank, &sampler);
  }
  for (const auto& [key, by_rank] : asked) {
    const SamplerRecord& first = *by_rank.begin()->second;
    if (by_rank.size() != static_cast<std::size_t>(first.origin.world_size)) continue;
    add_first(
        by_rank, [&](const auto& of_rank) { return judge_sampler(*of_rank.second, first); },
        findings);
  }
}

// The first step after which the rows of step 0 repeat in the same order.
std::optional<std::size_t> find_period(const Trainer& trainer) {
  std::vector<Rows> rows;
  for (const StepRecord* step : trainer.steps) {
    if (step->step != rows.size()) break;  // later steps are only recorded now and then
    rows.push_back(rows_of(*step));
  }
  if (rows.empty() || rows[0].empty()) return {};
  for (std::size_t period = 2; period < rows.size(); ++period) {
    if (rows[period] != rows[0]) continue;
    const std::size_t count = std::min(period, rows.size() - period);
    for (std::size_t k = 0; k < count; ++k) {
      if (rows[period + k] != rows[k]) return {};
    }
    return period;
  }
  return {};
}

// Finds shuffling that was asked for with the same epoch again and again.
std::optional<Finding> judge_order(const Records& records, const std::vector<Training>& trainings) {
  using Key = std::tuple<std::uint64_t, std::string, int, std::uint64_t, std::uint64_t>;
  std::map<Key, std::size_t> times_asked;
  for (const SamplerRecord& sampler : records.samplers) {
    const Origin& by = sampler.origin;
    if (sampler.shuffled) {
      ++times_asked[{by.process, by.group, by.rank, sampler.seed, sampler.epoch}];
    }
  }
  for (const Training& training : trainings) {
    const Trainer& trainer = *training.ranks[0];
    const Origin& by = trainer.first().origin;
    const std::optional<std::size_t> period = find_period(trainer);
    if (!period) continue;
    for (const auto& [key, times] : times_asked) {
      const auto& [process, group, rank, seed, epoch] = key;
      if (process != by.process || group != by.group || rank != by.rank || times < 2) continue;
      return Finding{
          "new-order",
          fmt::format("rank {} trains on the same rows in the same order again after {} steps; "
                      "its sampler was asked {} times for epoch {} (seed {})",
                      rank, *period, times, epoch, seed),
          "each epoch shuffles the rows anew",
          "give the sampler the number of the epoch (PyTorch: sampler.set_epoch(epoch))"};
    }
  }
  return {};
}

// A repeated row must have the same label.
std::optional<Finding> judge_labels(const Trainer& trainer) {
  std::map<std::uint64_t, std::uint64_t> label_of;
  std::size_t num_again = 0, num_other = 0;
  std::string example;
  for (const StepRecord* step : trainer.steps) {
    for (const auto& [pass, losses] : step->passes) {
      for (const LossRecord& loss : losses) {
        for (std::size_t i = 0; i < std::min(loss.hashes.size(), loss.labels.size()); ++i) {
          const auto [known, is_new] = label_of.try_emplace(loss.hashes[i], loss.labels[i]);
          if (is_new) continue;
          ++num_again;
          if (known->second == loss.labels[i]) continue;
          if (num_other++ == 0) {
            example = fmt::format("row {} of step {} has label {}, and had {} before", i,
                                  step->step, loss.labels[i], known->second);
          }
        }
      }
    }
  }
  if (num_other < 4 || 10 * num_other < num_again)
    return {};  // the data may contain a few rows twice
  return Finding{
      "own-labels",
      fmt::format("of {} rows that come again on rank {} {} have another label than before: {}",
                  num_again, trainer.first().origin.rank, num_other, example),
      "a row and its label stay together, however rows are shuffled and cut",
      "features and labels that are cut, shuffled or moved apart from each other"};
}

}  // namespace

void judge_rows(const Records& records, const std::vector<Training>& trainings,
                Findings& findings) {
  for (const Training& training : trainings) {
    if (!training.exchanges()) continue;
    std::optional<Finding> finding;
    for (std::size_t number = 0; number < training.num_steps() && !finding; ++number) {
      finding = judge_overlap(training, number);
    }
    add(finding, findings);
  }
  judge_samplers(records, findings);
  add(judge_order(records, trainings), findings);
  for (const Training& training : trainings) {
    const std::size_t before = findings.size();
    for (const Trainer* trainer : training.ranks) add(judge_labels(*trainer), findings);
    if (findings.size() > before) break;
  }
}

}  // namespace lockstep::doctor
