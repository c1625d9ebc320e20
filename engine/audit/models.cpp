#include "engine/audit/models.h"

#include <filesystem>
#include <system_error>

#include "engine/audit/event.h"

namespace lockstep::audit {
namespace {

constexpr int kMostScheduled = 1000;  // of a thread

std::string addresses(const std::vector<const void*>& pointers) {
  std::vector<std::uint64_t> numbers;
  for (const void* pointer : pointers) numbers.push_back(address_of(pointer));
  return list_of(numbers);
}

}  // namespace

void note_wrapped(const Wrapped& wrapped) {
  Event("wrapped")
      .add("wrapper", address_of(wrapped.wrapper))
      .add_json("inside", list_of(wrapped.inside))
      .add_json("leaves", addresses(wrapped.leaves));
}

void note_unwrapped(const void* wrapper) {
  Event("unwrapped").add("wrapper", address_of(wrapper));
}

void note_moved(const std::vector<const void*>& leaves, std::string_view from,
                std::string_view to) {
  Event("moved").add("from", from).add("to", to).add_json("leaves", addresses(leaves));
}

void note_loaded(const Loaded& loaded) {
  Event("loaded")
      .add("model", loaded.model)
      .add("loaded", loaded.num_loaded)
      .add_json("missing", list_of(loaded.missing))
      .add_json("unexpected", list_of(loaded.unexpected));
}

void note_saved(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(path, ignored);
  Event("saved").add("path", absolute.lexically_normal().string());
}

void note_lost_member(std::string_view module, std::string_view device, std::uint64_t num_bytes) {
  Event("member").add("module", module).add("device", device).add("bytes", num_bytes);
}

void note_sampled(const Sampled& sampled) {
  Event("sampler")
      .add("kind", sampled.kind)
      .add("samples", sampled.num_samples)
      .add("batch", sampled.batch_size)
      .add("of_world", sampled.world_size)
      .add("of_rank", sampled.rank)
      .add("seed", sampled.seed)
      .add("epoch", sampled.epoch)
      .add_json("shuffled", sampled.is_shuffled ? "true" : "false");
}

void note_scheduled(double base, std::uint64_t step, double rate) {
  thread_local int count = 0;
  if (++count > kMostScheduled) return;
  Event("schedule").add("base", base).add("step", step).add("rate", rate);
}

void note_intended(std::string_view invariant, std::string_view reason) {
  Event("intended").add("invariant", invariant).add("reason", reason);
}

}  // namespace lockstep::audit
