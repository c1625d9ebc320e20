// Which optimizers of which ranks train one model together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/doctor/records.h"

namespace lockstep::doctor {

// The steps of one optimizer.
struct Trainer {
  std::vector<const StepRecord*> steps;  // in order

  const StepRecord& first() const { return *steps.front(); }
  // Whether communication moved its gradients or weights, or as many bytes.
  bool exchanges() const;
  // Whether it moves weights between steps and no gradients, as local SGD does.
  bool exchanges_weights() const;
};

// One trainer of each rank of a group, by rank; of a program without ranks a single one.
struct Training {
  std::vector<const Trainer*> ranks;
  enum class Link {
    exchange,  // they exchange gradients or weights, or are wrapped in Ddp
    weights,   // they exchange weights now and then: local SGD, between whose averages replicas
               // differ
    none,      // they have models alike, and nothing says that they belong together
  } link = Link::exchange;

  std::size_t world_size() const { return ranks.size(); }
  bool exchanges() const { return world_size() > 1 && link == Link::exchange; }
  std::size_t num_steps() const;  // that all ranks have made
  const StepRecord& step(std::size_t rank, std::size_t number) const {
    return *ranks[rank]->steps[number];
  }
};

std::vector<Trainer> find_trainers(const Records& records);
// Trainers that have no partners on the other ranks of their group (rank 0 trains a reference, say)
// are a training of one.
std::vector<Training> find_trainings(const Records& records, const std::vector<Trainer>& trainers);

// "parameter 2 [10, 128]"
std::string name_of(const StepRecord& step, std::size_t parameter);
// Of the losses of a step, over all passes.
std::uint64_t num_rows(const StepRecord& step);

}  // namespace lockstep::doctor
