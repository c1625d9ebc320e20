// A collective operation as a value: which rank sends which chunk to whom, step by step.
//
// A plan is made by a pure function (algorithms.h), and holds no memory, thread or device. The
// communicator runs it, the tutorials print it (plan_text.cpp), interpreter.cpp says what it means,
// and its steps give its cost on a topology.
//
// All transfers of a step happen at once, so every read sees the values from before the step; if a
// rank sends and overwrites a chunk in one step, an executor has to copy it first. If a rank
// receives several `add` transfers for the same chunk in one step, the result is the sum of its own
// value and all senders' values in the order of their ranks, so that ranks that add the same values
// get the same bits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::plan {

// A chunk: the range of a buffer that one transfer of a collective moves, counted in elements.
struct Chunk {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  bool operator==(const Chunk&) const = default;
};

// True if some element belongs to both. An empty chunk overlaps nothing.
inline bool overlaps(Chunk a, Chunk b) {
  return a.count > 0 && b.count > 0 && a.offset < b.end() && b.offset < a.end();
}

// Chunk `index` of num_chunks consecutive chunks that cover num_elements as evenly as possible: the
// first num_elements % num_chunks chunks have one element more than the others. 10 elements in 4
// chunks: 3, 3, 2, 2. REQUIRES: index < num_chunks.
Chunk even_chunk(std::size_t num_elements, std::size_t num_chunks, std::size_t index);

// The even chunks first ... last - 1 as one range. REQUIRES: first <= last <= num_chunks.
Chunk even_chunks(std::size_t num_elements, std::size_t num_chunks, std::size_t first,
                  std::size_t last);

// "[48, 64)": the first element and the one after the last.
std::string to_string(Chunk chunk);

enum class Combine {
  copy,  // the sender's values replace the receiver's
  add,   // the sender's values are added to the receiver's
};

// The chunk is the same range in the sender's and in the receiver's buffer.
struct Transfer {
  int from_rank = 0;
  int to_rank = 0;
  Chunk chunk;
  Combine combine = Combine::copy;

  bool operator==(const Transfer&) const = default;
};

struct Step {
  std::string label;
  std::vector<Transfer> transfers;

  bool operator==(const Step&) const = default;
};

// Every rank holds a buffer of num_elements. No transfer is empty and no step lacks transfers, so a
// plan for one rank or for no elements has no steps.
struct CollectivePlan {
  std::string name;
  int world_size = 1;
  std::size_t num_elements = 0;
  std::vector<Step> steps;

  bool operator==(const CollectivePlan&) const = default;
};

std::size_t num_steps(const CollectivePlan& plan);

// Totals over all steps. REQUIRES: 0 <= rank < world_size, else throws Error{Usage}.
std::size_t elements_sent(const CollectivePlan& plan, int rank);
std::size_t elements_received(const CollectivePlan& plan, int rank);

// The total of the rank that sends most, for which all others wait.
std::size_t max_elements_sent(const CollectivePlan& plan);

// A text for people: one line per transfer, step by step, with element_size bytes per element, and
// each rank's totals at the end.
std::string to_string(const CollectivePlan& plan, std::size_t element_size);

// Collects the transfers of a plan while an algorithm walks through its steps.
class PlanBuilder {
 public:
  // Throws Error{Usage} when world_size < 1.
  PlanBuilder(std::string name, int world_size, std::size_t num_elements);

  void begin_step(std::string label);

  // Adds a transfer to the current step; an empty chunk is left out.
  // REQUIRES: begin_step was called.
  void copy(int from_rank, int to_rank, Chunk chunk);
  void add(int from_rank, int to_rank, Chunk chunk);

  // Appends another plan's steps. REQUIRES: the same world size and number of elements.
  void append(const CollectivePlan& part);

  // The plan, without steps that move nothing. The builder cannot be used afterwards.
  CollectivePlan finish();

 private:
  CollectivePlan plan_;
};

// Throws Error{Usage} unless 0 <= root < world_size.
void require_root(const std::string& operation, int world_size, int root);

// A step from the view of the rank that receives, which is how an executor runs it: one chunk of
// one rank's buffer, and all ranks that send to it in this step.
//   copy: exactly one sender; chunk = sender's chunk.
//   add:  chunk = the sum of the senders' and the own values in the order of ranks; the own rank
//         takes its place in that order: rank 1 with senders {0, 2} gets (v0 + v1) + v2.
struct Receive {
  Chunk chunk;
  Combine combine = Combine::copy;
  std::vector<int> from_ranks;  // ascending

  bool operator==(const Receive&) const = default;
};

// Everything that `rank` receives in this step, in rising order of offsets. The chunks of a valid
// plan's receives do not overlap.
std::vector<Receive> receives_of_rank(const Step& step, int rank);

// Throws Error{Usage}, naming plan, step and transfer, unless every rank exists, no rank sends to
// itself, every chunk is inside the buffer and not empty, and no two receives of a rank in one step
// overlap (several adds to the same chunk from different ranks are one write).
void require_valid(const CollectivePlan& plan);

// A plan as one rank sees it: for each step, the chunks that it sends and those that it receives. A
// communicator carries this out.
struct RankSchedule {
  struct Send {
    int to_rank = 0;
    Chunk chunk;
  };
  struct Step {
    std::vector<Send> sends;  // in rising order of offsets, so that a pair agrees on the order
    std::vector<Receive> receives;  // in rising order of offsets
    bool overwrites_sent = false;   // it receives chunks that it also sends
  };

  std::vector<Step> steps;  // the plan's steps; some are empty for this rank
  std::size_t num_elements_sent = 0;
};

// Throws Error{Usage} if the plan is not valid or the rank is outside it.
RankSchedule rank_schedule(const CollectivePlan& plan, int rank);

// The interpreter runs a plan on plain vectors, one rank after the other: it defines the meaning of
// a plan in twenty lines. Tests check plans with it, and tutorials show what each step does to the
// buffers. It uses buffers[rank][element].
using RankBuffers = std::vector<std::vector<double>>;

// Does one step: all reads see the buffers from before it.
// REQUIRES: the step is part of a valid plan for these buffers.
void interpret_step(const Step& step, RankBuffers& buffers);

// Does all steps of a plan.
// Throws Error{Usage} if the plan is not valid (require_valid), or if the buffers are not
// world_size vectors of num_elements.
void interpret(const CollectivePlan& plan, RankBuffers& buffers);

}  // namespace lockstep::plan
