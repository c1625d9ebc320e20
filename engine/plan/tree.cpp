// The binary tree: values are summed from the leaves up to the root, and the sum goes back down.
//
// Rank r takes the place v = (r - root) mod n; the parent of place v is (v - 1) / 2. The tree is
// floor(log2(n)) levels deep, so it has few steps even for many ranks; but an inner rank talks to
// three others. Large buffers are cut into K pieces that follow each other through the tree, so
// that all levels work at the same time, and the way down begins while later pieces are still on
// the way up.
//
// Source: the pipelined binary tree of Sanders, Speck and Träff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", 2009 (NCCL's tree is their pair of trees); this is the
// single tree.
#include "engine/plan/algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {
namespace {

constexpr double kElementsPerLatency = 16384;
constexpr double kMaxPieces = 64;

int rank_at(int place, int root, int world_size) {
  return (place + root) % world_size;
}

int parent_of(int place) {
  return (place - 1) / 2;
}

// Level of a place: 0 for the root, 1 for its children, ...
int level_of(int place) {
  return tree_depth(place + 1);
}

struct Tree {
  int world_size;
  int root;
  std::size_t num_elements;
  std::size_t num_pieces;

  int depth() const { return tree_depth(world_size); }

  // The piece that is processed `age` steps after the pipeline began; empty if there is none.
  Chunk piece(int age) const {
    if (age < 0 || static_cast<std::size_t>(age) >= num_pieces) return {};
    return even_chunk(num_elements, num_pieces, static_cast<std::size_t>(age));
  }
};

// Level l sends piece k up in step (depth - l) + k, so the deepest level begins.
void send_up(PlanBuilder& builder, const Tree& tree, int step) {
  for (int place = 1; place < tree.world_size; ++place) {
    builder.add(rank_at(place, tree.root, tree.world_size),
                rank_at(parent_of(place), tree.root, tree.world_size),
                tree.piece(step - (tree.depth() - level_of(place))));
  }
}

// Level l receives piece k from its parent in step (l - 1) + k, so the root's children begin.
void send_down(PlanBuilder& builder, const Tree& tree, int step) {
  for (int place = 1; place < tree.world_size; ++place) {
    builder.copy(rank_at(parent_of(place), tree.root, tree.world_size),
                 rank_at(place, tree.root, tree.world_size),
                 tree.piece(step - (level_of(place) - 1)));
  }
}

Tree make_tree(int world_size, std::size_t num_elements, int root, int num_rounds) {
  return {world_size, root, num_elements, tree_pipeline_pieces(num_rounds, num_elements)};
}

int pipeline_steps(int num_levels, const Tree& tree) {
  return num_levels + static_cast<int>(tree.num_pieces) - 1;
}

}  // namespace

int tree_depth(int world_size) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(world_size))) - 1;
}

std::size_t tree_pipeline_pieces(int num_rounds, std::size_t num_elements) {
  const double best =
      std::sqrt(std::max(num_rounds, 0) * static_cast<double>(num_elements) / kElementsPerLatency);
  const auto pieces = static_cast<std::size_t>(std::clamp(std::round(best), 1.0, kMaxPieces));
  return std::clamp<std::size_t>(pieces, 1, std::max<std::size_t>(num_elements, 1));
}

CollectivePlan tree_broadcast(int world_size, std::size_t num_elements, int root) {
  PlanBuilder builder("tree broadcast", world_size, num_elements);
  require_root("tree broadcast", world_size, root);
  const Tree tree = make_tree(world_size, num_elements, root, tree_depth(world_size) - 1);
  const int total = pipeline_steps(tree.depth(), tree);
  for (int step = 0; step < total; ++step) {
    builder.begin_step(fmt::format("down {}/{}", step + 1, total));
    send_down(builder, tree, step);
  }
  return builder.finish();
}

CollectivePlan tree_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("tree all-reduce", world_size, num_elements);
  const Tree tree = make_tree(world_size, num_elements, 0, 2 * tree_depth(world_size) - 1);
  const int total = pipeline_steps(2 * tree.depth(), tree);
  for (int step = 0; step < total; ++step) {
    builder.begin_step(fmt::format("up and down {}/{}", step + 1, total));
    send_up(builder, tree, step);
    // The root has piece 0 complete after `depth` steps.
    send_down(builder, tree, step - tree.depth());
  }
  return builder.finish();
}

}  // namespace lockstep::plan
