// Makes sure that all ranks begin with the same model.
#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/parallel/ddp/ddp.h"

namespace lockstep::parallel {
namespace {

// A parameter's or a buffer's name, and what must be the same on all ranks: "[4, 3] float32".
using Item = std::pair<std::string, std::string>;

std::string shape_and_dtype(const Tensor& tensor) {
  return fmt::format("{} {}", to_string(tensor.shape()), to_string(tensor.dtype()));
}

// A rank's text, on every rank.
std::string text_of_rank(int rank, const std::string& mine, comm::Communicator& communicator) {
  const Tensor length = Tensor::full({1}, static_cast<double>(mine.size()), DType::int64);
  communicator.broadcast(length, rank).wait();
  std::vector<std::uint8_t> letters(mine.begin(), mine.end());
  letters.resize(static_cast<std::size_t>(length.item()));
  const Tensor shared = Tensor::from(letters, {letters.size()}, Device{});
  communicator.broadcast(shared, rank).wait();
  letters = shared.to_vector<std::uint8_t>();
  return std::string(letters.begin(), letters.end());
}

// kind: "parameter". Ranks may know the same one under different names; messages use rank 0's.
void verify(const char* kind, const std::vector<Item>& mine, comm::Communicator& communicator) {
  const auto size = static_cast<std::int64_t>(mine.size());
  const std::vector<std::int64_t> counts = comm::gather_numbers({size}, communicator);
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    require(counts[rank] == counts[0], ErrorCode::Comm, "ddp",
            "models differ: rank {} has {} {}s, rank 0 has {}", rank, counts[rank], kind,
            counts[0]);
  }
  std::string all_of_mine;
  for (const Item& item : mine) all_of_mine += item.second + '\n';
  std::istringstream all_of_first(text_of_rank(0, all_of_mine, communicator));
  std::vector<std::string> first(mine.size());
  for (std::string& description : first) std::getline(all_of_first, description);
  const auto is_same = [](const Item& item, const std::string& other) {
    return item.second == other;
  };
  const auto differs = std::ranges::mismatch(mine, first, is_same).in1 - mine.begin();
  const std::vector<std::int64_t> all = comm::gather_numbers({differs}, communicator);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == size) continue;
    const auto i = static_cast<std::size_t>(all[rank]);
    const int other = static_cast<int>(rank);
    const std::string name = text_of_rank(0, mine[i].first, communicator);
    const std::string theirs = text_of_rank(other, mine[i].second, communicator);
    fail(ErrorCode::Comm, "ddp", "models differ: {} {} ({}) is {} on rank {}, but {} on rank 0",
         kind, i, name, theirs, rank, first[i]);
  }
}

// Ranks that are threads share memory, but each trains a model of its own.
void require_own_model(const nn::Module& module, comm::Communicator& communicator) {
  const std::vector<Variable> parameters = module.parameters();
  if (communicator.transport() != "thread" || parameters.empty()) return;
  const auto address = reinterpret_cast<std::intptr_t>(parameters[0].identity());
  const std::vector<std::int64_t> all = comm::gather_numbers({address}, communicator);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = std::ranges::find(all, all[rank]) - all.begin();
    require(other == static_cast<std::ptrdiff_t>(rank), ErrorCode::Usage, "ddp",
            "ranks {} and {} wrap the same parameters; make a model in each rank", other, rank);
  }
}

}  // namespace

void broadcast_model(const nn::Module& module, comm::Communicator& communicator) {
  std::vector<Item> parameters, buffers;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const char* frozen = parameter.requires_grad() ? "" : " without gradient";
    parameters.emplace_back(name, shape_and_dtype(parameter.value()) + frozen);
  }
  for (const auto& [name, buffer] : module.named_buffers()) {
    buffers.emplace_back(name, shape_and_dtype(buffer));
  }
  verify("parameter", parameters, communicator);
  require_own_model(module, communicator);
  verify("buffer", buffers, communicator);
  broadcast_values(module, communicator, 0);
}

}  // namespace lockstep::parallel
