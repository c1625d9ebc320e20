#include "engine/parallel/ddp/verify_models.h"

#include <array>
#include <cstdint>
#include <vector>

#include "engine/core/error.h"

namespace lockstep::parallel {
namespace {

// What must be equal, as numbers that can be gathered.
struct Signature {
  static constexpr std::size_t kLength = 3 + Shape::kMaxDims;
  std::array<std::int64_t, kLength> words{};

  static Signature of(const Variable& parameter) {
    Signature signature;
    signature.words[0] = static_cast<std::int64_t>(parameter.dtype());
    signature.words[1] = parameter.requires_grad();
    signature.words[2] = static_cast<std::int64_t>(parameter.shape().num_dims());
    for (std::size_t dim = 0; dim < parameter.shape().num_dims(); ++dim) {
      signature.words[3 + dim] = static_cast<std::int64_t>(parameter.shape()[dim]);
    }
    return signature;
  }

  static std::string describe(const std::int64_t* words) {
    std::vector<std::size_t> sizes(words + 3, words + 3 + words[2]);
    return fmt::format("{} {}{}", to_string(Shape(sizes)), to_string(static_cast<DType>(words[0])),
                       words[1] ? "" : " without gradient");
  }
};

std::vector<std::int64_t> gather_from_all(const std::vector<std::int64_t>& mine,
                                          comm::Communicator& communicator) {
  const auto world_size = static_cast<std::size_t>(communicator.world_size());
  const Tensor input = Tensor::from(mine, {mine.size()});
  const Tensor output = Tensor::empty({mine.size() * world_size}, DType::int64);
  communicator.all_gather(input, output).wait();
  return output.to_vector<std::int64_t>();
}

}  // namespace

void verify_models_match(const nn::Module& module, comm::Communicator& communicator) {
  const auto parameters = module.named_parameters();
  const auto count = static_cast<std::int64_t>(parameters.size());
  const std::vector<std::int64_t> counts = gather_from_all({count}, communicator);
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    require(counts[rank] == counts[0], ErrorCode::Comm, "ddp",
            "models differ: rank {} has {} parameters, rank 0 has {}", rank, counts[rank],
            counts[0]);
  }
  std::vector<std::int64_t> mine;
  for (const auto& [name, parameter] : parameters) {
    const Signature signature = Signature::of(parameter);
    mine.insert(mine.end(), signature.words.begin(), signature.words.end());
  }
  const std::vector<std::int64_t> all = gather_from_all(mine, communicator);
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::int64_t* theirs = all.data() + rank * mine.size() + i * Signature::kLength;
      const std::int64_t* first = all.data() + i * Signature::kLength;
      require(std::equal(theirs, theirs + Signature::kLength, first), ErrorCode::Comm, "ddp",
              "models differ: parameter {} ({}) is {} on rank {}, but {} on rank 0", i,
              parameters[i].first, Signature::describe(theirs), rank, Signature::describe(first));
    }
  }
}

}  // namespace lockstep::parallel
