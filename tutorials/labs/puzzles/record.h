// The pieces of a schedule, and how they change what the GPUs hold.
#pragma once

#include <cstddef>
#include <vector>

#include "tutorials/labs/puzzles/clock.h"
#include "tutorials/labs/puzzles/rules.h"
#include "tutorials/labs/puzzles/verbs.h"

namespace lab {

class Record {
 public:
  // Returns the piece's index.
  std::size_t add(const Verb& verb, Piece piece);

  // Memory is taken when the piece begins, and given back (num_bytes < 0) when it ends.
  void change(int gpu, std::size_t piece, std::ptrdiff_t num_bytes) {
    changes_.push_back({gpu, piece, num_bytes});
  }

  // Fills in times and memory.
  void time(std::size_t num_gpus, Played& played) const;

 private:
  struct Change {
    int gpu = 0;
    std::size_t piece = 0;
    std::ptrdiff_t num_bytes = 0;
  };

  std::vector<Piece> pieces_;
  std::vector<Verb> verbs_;  // by piece
  std::vector<Change> changes_;
};

}  // namespace lab
