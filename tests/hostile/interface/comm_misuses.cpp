#include <array>
#include <atomic>
#include <limits>
#include <optional>
#include <stdexcept>

#include "engine/comm/grouped/grouped_communicator.h"
#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

using comm::Communicator;
using comm::GroupedCommunicator;
using comm::ReduceOp;
using Call = std::function<void(Communicator&, Rng&)>;

constexpr int kWorldSize = 2;

// Every rank makes a call whose arguments are wrong, and hears of it before the others do: so the
// group goes on as if nothing had been called.
void on_every_rank(Rng& rng, const Call& call) {
  const std::uint64_t seed = rng.next_word();
  std::array<std::optional<Error>, kWorldSize> errors;
  std::atomic<int> num_sound = 0;
  const auto run = [&](Communicator& communicator) {
    Rng same(seed);
    try {
      call(communicator, same);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(communicator.rank())] = error;
    }
    const Tensor sum = Tensor::full({3}, communicator.rank());
    communicator.all_reduce(sum);
    if (sum.to_vector<double>() == std::vector<double>(3, 1.0)) ++num_sound;
  };
  try {
    comm::run_ranks(kWorldSize, run);
  } catch (const Error&) {
    throw std::runtime_error("the group is broken afterwards");
  }
  if (num_sound != kWorldSize) throw std::runtime_error("the group adds wrongly afterwards");
  for (const auto& error : errors) {
    if (!error) return;  // accepted in silence
  }
  throw Error(*errors[0]);
}

Misuse on_ranks(std::string name, Call call) {
  return {std::move(name), [call](Rng& rng) { on_every_rank(rng, call); }};
}

int no_rank(Rng& rng) {
  return one_of<int>(rng, {-1, kWorldSize, kWorldSize + 7, std::numeric_limits<int>::min(),
                           std::numeric_limits<int>::max()});
}

void reduce_what_has_no_sum(Communicator& communicator, Rng& rng) {
  const Tensor integers = Tensor::zeros({4}, random_integer(rng));
  const Tensor bytes = Tensor::zeros({4}, DType::uint8);
  const std::vector<std::function<void()>> uses{
      [&] { communicator.all_reduce(bytes); },
      [&] { communicator.all_reduce(integers, {.op = ReduceOp::average}); },
      [&] { communicator.reduce_scatter(bytes, bytes.rows(0, 2)); },
      [&] { communicator.all_reduce(Tensor()); },
      [&] {
        communicator.all_reduce(std::vector<Tensor>{Tensor::zeros({2}), Tensor()});
      },
      [&] { communicator.broadcast(Tensor(), 0); },
      [&] { communicator.send(Tensor(), 0); },
      [&] { communicator.recv(Tensor(), 0); },
      [&] { communicator.all_gather(Tensor(), Tensor::zeros({2})); },
      [&] { communicator.all_gather(Tensor::zeros({2}), Tensor()); },
  };
  one_of(rng, uses)();
}

void name_no_rank(Communicator& communicator, Rng& rng) {
  const Tensor buffer = Tensor::zeros({2});
  const int rank = no_rank(rng);
  switch (rng.below(4)) {
    case 0:
      communicator.broadcast(buffer, rank);
      break;
    case 1:
      communicator.broadcast(std::vector<Tensor>{buffer}, rank);
      break;
    case 2:
      communicator.send(buffer, rank);
      break;
    default:
      communicator.recv(buffer, rank);
  }
}

void parts_that_do_not_fit(Communicator& communicator, Rng& rng) {
  const std::size_t n = between(rng, 1, 5);
  const Tensor part = Tensor::zeros({n});
  const std::vector<Tensor> wholes{
      Tensor::zeros({kWorldSize * n + between(rng, 1, 5)}), Tensor::zeros({n}),
      Tensor::zeros({kWorldSize * n}, DType::float64),
      Tensor::zeros({kWorldSize * n}, DType::float32, {DeviceType::cpu, 1})};
  if (rng.below(2) == 0) {
    communicator.all_gather(part, one_of(rng, wholes));
  } else {
    communicator.reduce_scatter(one_of(rng, wholes), part);
  }
}

void buffers_that_overlap(Communicator& communicator, Rng& rng) {
  const Tensor memory = Tensor::zeros({10});
  const std::size_t begin = rng.below(5);
  const std::vector<Tensor> buffers{memory.rows(begin, 6), memory.rows(rng.below(6), 9)};
  if (rng.below(2) == 0) {
    communicator.all_reduce(buffers);
  } else {
    communicator.broadcast(buffers, 0);
  }
}

// Not an argument of one rank: what the ranks say together makes no sense, and all are told.
void ranks_that_call_different_things(Rng& rng) {
  const std::uint64_t kind = rng.below(4);
  comm::ThreadGroupOptions options;
  options.timeout_seconds = 5;
  comm::run_ranks(
      kWorldSize,
      [kind](Communicator& communicator) {
        const bool is_first = communicator.rank() == 0;
        const Tensor small = Tensor::zeros({2});
        const Tensor large = Tensor::zeros({3});
        switch (kind) {
          case 0:
            communicator.all_reduce(is_first ? small : large);
            break;
          case 1:
            communicator.all_reduce(is_first ? small : small.to(DType::float64));
            break;
          case 2:
            communicator.broadcast(small, is_first ? 0 : 1);
            break;
          default:
            is_first ? communicator.barrier() : communicator.all_reduce(small);
        }
      },
      options);
}

void grouped(Rng& rng) {
  const std::vector<Device> devices{{DeviceType::cpu, 0}, {DeviceType::cpu, 1}};
  GroupedCommunicator group(devices);
  const Tensor a = Tensor::zeros({2}, DType::float32, devices[0]);
  const Tensor b = Tensor::zeros({2}, DType::float32, devices[1]);
  const std::vector<std::function<void()>> uses{
      [&] { GroupedCommunicator(std::vector<Device>{}); },
      [&] {
        GroupedCommunicator({devices[0], no_device(rng)});
      },
      [&] { group.all_reduce({}); },
      [&] { group.all_reduce(std::vector<Tensor>{a}); },
      [&] {
        group.all_reduce(std::vector<Tensor>{a, Tensor()});
      },
      [&] {
        group.all_reduce(std::vector<Tensor>{b, a});
      },
      [&] {
        group.all_reduce(std::vector<Tensor>{a, b.rows(0, 1)});
      },
      [&] {
        group.all_reduce(std::vector<Tensor>{a, b.to(DType::float64)});
      },
      [&] {
        group.broadcast(std::vector<Tensor>{a, b}, no_rank(rng));
      },
  };
  one_of(rng, uses)();
}

}  // namespace

Misuses comm_misuses() {
  return {
      on_ranks("a tensor that has no sum", reduce_what_has_no_sum),
      on_ranks("a rank that is none", name_no_rank),
      on_ranks("parts that do not fit", parts_that_do_not_fit),
      on_ranks("buffers that overlap", buffers_that_overlap),
      on_ranks("a time that is none",
               [](Communicator& communicator, Rng& rng) {
                 communicator.set_timeout_seconds(one_of<double>(
                     rng, {0, -1, -1e300, std::numeric_limits<double>::quiet_NaN()}));
               }),
      {"ranks that call different things", ranks_that_call_different_things},
      {"a group of devices", grouped},
      {"a world without ranks",
       [](Rng& rng) { comm::run_ranks(-static_cast<int>(rng.below(1000)), [](Communicator&) {}); }},
      {"ranks with nothing to do",
       [](Rng& rng) { comm::run_ranks(static_cast<int>(between(rng, 1, 3)), nullptr); }},
  };
}

}  // namespace lockstep::testing
