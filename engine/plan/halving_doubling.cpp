// Recursive halving and doubling: in each step a rank exchanges with one partner, first the
// neighbour (rank xor 1), then twice as far away, and so on; each time it keeps half of what it
// still had to sum. The way back doubles the finished part until every rank has all of it.
//
// As few bytes as the ring, in 2 log2(n) steps instead of 2(n-1).
//
// If the world size is not a power of two, let p be the largest power of two below it and e = n - p
// the number of extra ranks: ranks 0, 2, ... 2e-2 first add their buffer to their right
// neighbour's, sit out, and get the result at the end.
//
// With a power of two, every element is summed in the pairwise binary tree over the ranks,
// ((0+1)+(2+3))+((4+5)+(6+7)), which the bitwise mode needs between devices (micro_shards.h).
//
// Source: Rabenseifner's algorithm in Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH", 2005 (vector halving with distance doubling).
#include "engine/plan/algorithms.h"

#include <fmt/format.h>

#include <bit>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {
namespace {

// The p ranks that exchange, numbered 0 ... p-1, and the extra ones that sit out.
struct Group {
  int num_members;  // p, a power of two
  int num_extra;    // e
  std::size_t num_elements;

  int rank_of(int member) const { return member < num_extra ? 2 * member + 1 : member + num_extra; }

  // The part that `member` still sums after it has exchanged over the distances 1, 2, ... distance
  // / 2: at each distance the member whose bit is set keeps the upper half.
  Chunk kept(int member, int distance) const {
    std::size_t first = 0;
    auto count = static_cast<std::size_t>(num_members);
    for (int bit = 1; bit < distance; bit *= 2) {
      count /= 2;
      if (member & bit) first += count;
    }
    return even_chunks(num_elements, static_cast<std::size_t>(num_members), first, first + count);
  }
};

void fold_in(PlanBuilder& builder, const Group& group) {
  builder.begin_step("fold in the extra ranks");
  for (int extra = 0; extra < group.num_extra; ++extra) {
    builder.add(2 * extra, 2 * extra + 1, {0, group.num_elements});
  }
}

void fold_out(PlanBuilder& builder, const Group& group) {
  builder.begin_step("hand the result to the extra ranks");
  for (int extra = 0; extra < group.num_extra; ++extra) {
    builder.copy(2 * extra + 1, 2 * extra, {0, group.num_elements});
  }
}

}  // namespace

CollectivePlan halving_doubling_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("halving-doubling all-reduce", world_size, num_elements);
  const int num_members = static_cast<int>(std::bit_floor(static_cast<unsigned>(world_size)));
  const Group group{num_members, world_size - num_members, num_elements};
  fold_in(builder, group);
  for (int distance = 1; distance < num_members; distance *= 2) {
    builder.begin_step(fmt::format("halve at distance {}", distance));
    for (int member = 0; member < num_members; ++member) {
      const int partner = member ^ distance;
      builder.add(group.rank_of(member), group.rank_of(partner), group.kept(partner, 2 * distance));
    }
  }
  for (int distance = num_members / 2; distance >= 1; distance /= 2) {
    builder.begin_step(fmt::format("double at distance {}", distance));
    for (int member = 0; member < num_members; ++member) {
      builder.copy(group.rank_of(member), group.rank_of(member ^ distance),
                   group.kept(member, 2 * distance));
    }
  }
  fold_out(builder, group);
  return builder.finish();
}

}  // namespace lockstep::plan
