#include "bucket_plan.h"

#include <algorithm>

#include "lab.h"

namespace lab {

std::vector<std::vector<std::size_t>> bucket_plan(std::span<const std::size_t> num_bytes,
                                                  std::span<const std::size_t> byte_limits) {
  // SOLUTION begin: bucket_plan: fill buckets from the last parameter on; close each at its limit
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::size_t> open;
  std::size_t open_bytes = 0;
  for (std::size_t p = num_bytes.size(); p-- > 0;) {
    open.push_back(p);
    open_bytes += num_bytes[p];
    const std::size_t limit = byte_limits[std::min(buckets.size(), byte_limits.size() - 1)];
    if (open_bytes < limit) continue;
    buckets.push_back(open);
    open.clear();
    open_bytes = 0;
  }
  if (!open.empty()) buckets.push_back(open);
  return buckets;
  // SOLUTION end
}

}  // namespace lab
