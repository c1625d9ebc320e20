#include "engine/parallel/ddp/ddp.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/comm/small_collectives.h"
#include "engine/core/error.h"
#include "engine/trace/observer.h"

namespace lockstep::parallel {

namespace {

// What must be equal, as numbers that can be gathered.
struct Signature {
  static constexpr std::size_t kLength = 3 + Shape::kMaxDims;
  std::array<std::int64_t, kLength> words{};

  Signature(const Tensor& tensor, RequiresGrad requires_grad) {
    words[0] = static_cast<std::int64_t>(tensor.dtype());
    words[1] = requires_grad == RequiresGrad::yes;
    words[2] = static_cast<std::int64_t>(tensor.num_dims());
    for (std::size_t dim = 0; dim < tensor.num_dims(); ++dim) {
      words[3 + dim] = static_cast<std::int64_t>(tensor.size(dim));
    }
  }

  static std::string describe(const std::int64_t* words) {
    std::vector<std::size_t> sizes(words + 3, words + 3 + words[2]);
    return fmt::format("{} {}{}", to_string(Shape(sizes)), to_string(static_cast<DType>(words[0])),
                       words[1] ? "" : " without gradient");
  }
};

// One kind of thing that a model has, in order.
struct Inventory {
  const char* kind;  // "parameter"
  std::vector<std::string> names;
  std::vector<Signature> signatures;
};

Inventory parameters_of(const nn::Module& module) {
  Inventory inventory{"parameter", {}, {}};
  for (const auto& [name, parameter] : module.named_parameters()) {
    inventory.names.push_back(name);
    inventory.signatures.emplace_back(
        parameter.value(), parameter.requires_grad() ? RequiresGrad::yes : RequiresGrad::no);
  }
  return inventory;
}

Inventory buffers_of(const nn::Module& module) {
  Inventory inventory{"buffer", {}, {}};
  for (const auto& [name, buffer] : module.named_buffers()) {
    inventory.names.push_back(name);
    inventory.signatures.emplace_back(buffer, RequiresGrad::no);
  }
  return inventory;
}

// Ranks may know the same parameter under different names; the verdict uses rank 0's.
std::string name_on_rank_0(const std::string& mine, comm::Communicator& communicator) {
  const Tensor length = Tensor::from(
      std::vector<std::int64_t>{static_cast<std::int64_t>(mine.size())}, {1}, Device{});
  communicator.broadcast(length, 0).wait();
  std::vector<std::int64_t> letters(mine.begin(), mine.end());
  letters.resize(static_cast<std::size_t>(length.item()));
  const Tensor shared = Tensor::from(letters, {letters.size()}, Device{});
  communicator.broadcast(shared, 0).wait();
  letters = shared.to_vector<std::int64_t>();
  return std::string(letters.begin(), letters.end());
}

void verify(const Inventory& inventory, comm::Communicator& communicator) {
  const std::size_t size = inventory.names.size();
  const auto counts = comm::gather_numbers({static_cast<std::int64_t>(size)}, communicator);
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    require(counts[rank] == counts[0], ErrorCode::Comm, "ddp",
            "models differ: rank {} has {} {}s, rank 0 has {}", rank, counts[rank], inventory.kind,
            counts[0]);
  }
  std::vector<std::int64_t> mine;
  for (const Signature& signature : inventory.signatures) {
    mine.insert(mine.end(), signature.words.begin(), signature.words.end());
  }
  const std::vector<std::int64_t> all = comm::gather_numbers(mine, communicator);
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    for (std::size_t i = 0; i < size; ++i) {
      const std::int64_t* theirs = all.data() + rank * mine.size() + i * Signature::kLength;
      const std::int64_t* first = all.data() + i * Signature::kLength;
      if (std::equal(theirs, theirs + Signature::kLength, first)) continue;
      fail(ErrorCode::Comm, "ddp", "models differ: {} {} ({}) is {} on rank {}, but {} on rank 0",
           inventory.kind, i, name_on_rank_0(inventory.names[i], communicator),
           Signature::describe(theirs), rank, Signature::describe(first));
    }
  }
}

}  // namespace

void broadcast_model(const nn::Module& module, comm::Communicator& communicator) {
  verify(parameters_of(module), communicator);
  verify(buffers_of(module), communicator);
  std::vector<Tensor> state = module.buffers();
  for (const Variable& parameter : module.parameters()) state.push_back(parameter.value());
  broadcast_from_rank_0(state, communicator);
}

void broadcast_from_rank_0(const std::vector<Tensor>& tensors, comm::Communicator& communicator) {
  std::vector<Tensor> distinct;
  for (const Tensor& tensor : tensors) {
    const auto is_same = [&](const Tensor& other) { return other.shares_memory_with(tensor); };
    if (std::ranges::none_of(distinct, is_same)) distinct.push_back(tensor);
  }
  communicator.broadcast(distinct, 0).wait();
}

namespace {

void find_wrappers(const nn::Module& module, std::vector<std::string>& found) {
  const std::string name = module.type_name();
  if (name == "DistributedDataParallel" || name == "DataParallel") found.push_back(name);
  for (const auto& [unused, child] : module.children()) find_wrappers(*child, found);
}

void tell_wrapped(trace::Observer& observer, const Ddp& ddp, const nn::Module& module) {
  std::vector<const void*> leaves;
  for (const Variable& parameter : module.parameters()) leaves.push_back(parameter.identity());
  std::vector<std::string> inside;
  find_wrappers(module, inside);
  observer.fact("wrapped",
                {{"wrapper", trace::address_of(&ddp)}, {"inside", inside}, {"leaves", leaves}});
}

}  // namespace

Ddp::Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
         const DdpOptions& options)
    : communicator_(&communicator), options_(options) {
  require(module != nullptr, ErrorCode::Usage, "ddp", "there is no module to wrap");
  broadcast_model(*module, communicator);
  reducer_ =
      std::make_shared<GradReducer>(module->named_parameters(), communicator, options.reducer);
  if (trace::Observer* observer = trace::observer()) tell_wrapped(*observer, *this, *module);
  register_child("module", std::move(module));
}

Ddp::~Ddp() {
  if (trace::Observer* observer = trace::observer()) {
    observer->fact("unwrapped", {{"wrapper", trace::address_of(this)}});
  }
}

Variable Ddp::forward(const Variable& input) {
  if (grad_enabled()) {
    reducer_->begin_forward();
    if (is_training() && reducer_->is_synchronizing()) broadcast_buffers();
  }
  return (*module())(input);
}

void Ddp::broadcast_buffers() {
  if (options_.buffers != DdpOptions::Buffers::broadcast) return;
  broadcast_from_rank_0(module()->buffers(), *communicator_);
}

}  // namespace lockstep::parallel
