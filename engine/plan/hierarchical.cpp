// All-reduce for ranks on several hosts: as little as possible crosses the slow links between
// hosts, and every rank of a host carries its share of it.
//
// Let every host have at least L ranks. The buffer is cut into L chunks; rank number l of each host
// owns chunk l there:
//   1. inside each host, every rank sends chunk l to its owner, who adds them up
//   2. between hosts, the owners of chunk l all-reduce it among themselves (a ring, or
//      halving-doubling if it is small)
//   3. inside each host, the owners send their chunks to all others
// With one rank per host only the plan between hosts remains; on one host this is two-shot.
//
// Source: the two-level scheme of Horovod's NCCLHierarchicalAllreduce and of NCCL across nodes.
#include "engine/plan/algorithms.h"

#include <algorithm>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {
namespace {

// The ranks of each host, in rising order; hosts are in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_host(std::span<const int> host_of_rank) {
  std::vector<int> hosts;
  std::vector<std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto found = std::ranges::find(hosts, host_of_rank[rank]);
    const auto host = static_cast<std::size_t>(found - hosts.begin());
    if (found == hosts.end()) {
      hosts.push_back(host_of_rank[rank]);
      ranks.emplace_back();
    }
    ranks[host].push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

CollectivePlan hierarchical_all_reduce(std::span<const int> host_of_rank,
                                       std::size_t num_elements) {
  PlanBuilder builder("hierarchical all-reduce", static_cast<int>(host_of_rank.size()),
                      num_elements);
  const std::vector<std::vector<int>> hosts = ranks_by_host(host_of_rank);
  std::size_t num_owners = hosts.front().size();
  for (const std::vector<int>& ranks : hosts) num_owners = std::min(num_owners, ranks.size());

  builder.begin_step("reduce inside each host");
  for (const std::vector<int>& ranks : hosts) {
    for (std::size_t l = 0; l < num_owners; ++l) {
      const Chunk chunk = even_chunk(num_elements, num_owners, l);
      for (const int rank : ranks) {
        if (rank != ranks[l]) builder.add(rank, ranks[l], chunk);
      }
    }
  }

  // The first chunk is the longest, and its plan has the most steps.
  const bool is_short =
      even_chunk(num_elements, num_owners, 0).count <= kMaxHalvingDoublingElements;
  std::vector<CollectivePlan> between;
  for (std::size_t l = 0; l < num_owners; ++l) {
    const std::size_t count = even_chunk(num_elements, num_owners, l).count;
    const auto num_hosts = static_cast<int>(hosts.size());
    between.push_back(is_short ? halving_doubling_all_reduce(num_hosts, count)
                               : ring_all_reduce(num_hosts, count));
  }
  for (std::size_t s = 0; s < between.front().steps.size(); ++s) {
    builder.begin_step("between hosts: " + between.front().steps[s].label);
    for (std::size_t l = 0; l < num_owners; ++l) {
      if (s >= between[l].steps.size()) continue;
      const std::size_t offset = even_chunk(num_elements, num_owners, l).offset;
      for (const Transfer& transfer : between[l].steps[s].transfers) {
        const int from = hosts[static_cast<std::size_t>(transfer.from_rank)][l];
        const int to = hosts[static_cast<std::size_t>(transfer.to_rank)][l];
        const Chunk chunk{offset + transfer.chunk.offset, transfer.chunk.count};
        transfer.combine == Combine::add ? builder.add(from, to, chunk)
                                         : builder.copy(from, to, chunk);
      }
    }
  }

  builder.begin_step("broadcast inside each host");
  for (const std::vector<int>& ranks : hosts) {
    for (std::size_t l = 0; l < num_owners; ++l) {
      const Chunk chunk = even_chunk(num_elements, num_owners, l);
      for (const int rank : ranks) {
        if (rank != ranks[l]) builder.copy(ranks[l], rank, chunk);
      }
    }
  }
  return builder.finish();
}

}  // namespace lockstep::plan
