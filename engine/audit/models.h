// What became of models, samplers and schedules: one event each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::audit {

// "wrapped": by Ddp. inside: the type names of wrappers that are inside already.
struct Wrapped {
  const void* wrapper = nullptr;
  std::vector<const void*> leaves;
  std::vector<std::string> inside;
};
void note_wrapped(const Wrapped& wrapped);
// "unwrapped": the wrapper is gone.
void note_unwrapped(const void* wrapper);
// "moved": parameters went from a device to another.
void note_moved(const std::vector<const void*>& leaves, std::string_view from, std::string_view to);

// "loaded": a state dict that need not fit. names: at most some of each.
struct Loaded {
  std::string model;
  std::uint64_t num_loaded = 0;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};
void note_loaded(const Loaded& loaded);
// "saved": a file of weights or a checkpoint.
void note_saved(const std::string& path);

// "member": a replica's forward() wrote to a member that is no parameter, buffer or module.
void note_lost_member(std::string_view module, std::string_view device, std::uint64_t num_bytes);

// "sampler": the rows of an epoch for a rank.
struct Sampled {
  std::string_view kind;  // "exact"
  std::uint64_t num_samples = 0;
  std::uint64_t batch_size = 0;
  std::uint64_t world_size = 1;
  std::uint64_t rank = 0;  // as the sampler was told
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  bool is_shuffled = false;
};
void note_sampled(const Sampled& sampled);

// "schedule": a learning rate was asked for. The first ones of each thread.
void note_scheduled(double base, std::uint64_t step, double rate);

// "intended": this program breaks an invariant on purpose, and says why. For measurements and
// lessons; whoever examines the program is told, and it counts as no finding.
void note_intended(std::string_view invariant, std::string_view reason);

}  // namespace lockstep::audit
