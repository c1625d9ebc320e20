#include "simulate/predict/nvlink_rings.h"

#include <algorithm>
#include <cmath>

namespace lockstep::predict {
namespace {

using Cycle = std::vector<std::size_t>;
using Counts = std::vector<std::vector<int>>;

constexpr std::size_t kMaxGpus = 10;
constexpr std::size_t kMaxTries = 200'000;

// All closed ways through all GPUs that begin at 0; each in one of its two directions.
void find_cycles(const Counts& links, Cycle& path, std::vector<char>& used,
                 std::vector<Cycle>& found) {
  const std::size_t num_gpus = links.size();
  if (path.size() == num_gpus) {
    if (links[path.back()][0] > 0 && path[1] < path.back()) found.push_back(path);
    return;
  }
  for (std::size_t next = 1; next < num_gpus; ++next) {
    if (used[next] || links[path.back()][next] == 0) continue;
    used[next] = 1;
    path.push_back(next);
    find_cycles(links, path, used, found);
    path.pop_back();
    used[next] = 0;
  }
}

void use(Counts& links, const Cycle& cycle, int change) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const std::size_t a = cycle[i];
    const std::size_t b = cycle[(i + 1) % cycle.size()];
    links[a][b] += change;
    links[b][a] += change;
  }
}

bool fits(const Counts& links, const Cycle& cycle) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    if (links[cycle[i]][cycle[(i + 1) % cycle.size()]] == 0) return false;
  }
  return true;
}

// The most cycles from cycles[first] on that have links of their own; at most `limit`.
int most_cycles(Counts& links, const std::vector<Cycle>& cycles, std::size_t first, int limit,
                std::size_t& tries) {
  int best = 0;
  for (std::size_t i = first; i < cycles.size() && best < limit && tries < kMaxTries; ++i) {
    ++tries;
    if (!fits(links, cycles[i])) continue;
    use(links, cycles[i], -1);
    best = std::max(best, 1 + most_cycles(links, cycles, i, limit - 1, tries));
    use(links, cycles[i], 1);
  }
  return best;
}

}  // namespace

double nvlink_ring_bytes_per_second(const std::vector<std::vector<double>>& links) {
  const std::size_t num_gpus = links.size();
  if (num_gpus < 2 || num_gpus > kMaxGpus) return 0;
  if (num_gpus == 2) return links[0][1];
  double unit = 0;  // of one link: the slowest there is
  for (const std::vector<double>& row : links) {
    for (const double speed : row) {
      if (speed > 0) unit = unit == 0 ? speed : std::min(unit, speed);
    }
  }
  if (unit == 0) return 0;
  Counts counts(num_gpus, std::vector<int>(num_gpus, 0));
  int limit = 1 << 20;  // a cycle takes two links of each GPU
  for (std::size_t i = 0; i < num_gpus; ++i) {
    int degree = 0;
    for (std::size_t j = 0; j < num_gpus; ++j) {
      counts[i][j] = std::min(64, static_cast<int>(std::floor(links[i][j] / unit + 1e-9)));
      degree += counts[i][j];
    }
    limit = std::min(limit, degree / 2);
  }
  std::vector<Cycle> cycles;
  Cycle path{0};
  std::vector<char> used(num_gpus, 0);
  used[0] = 1;
  find_cycles(counts, path, used, cycles);
  std::size_t tries = 0;
  return 2 * unit * most_cycles(counts, cycles, 0, limit, tries);
}

}  // namespace lockstep::predict
