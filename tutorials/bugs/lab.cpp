#include "tutorials/bugs/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "datasets/digits.h"
#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/nn/loss.h"
#include "engine/nn/models.h"
#include "tools/watch/program.h"

namespace lockstep::bugs {

int run_bug(int argc, char** argv, const std::function<void()>& body) {
  const std::string program = std::filesystem::path(argc > 0 ? argv[0] : "bug").filename();
  const bool is_watched = argc == 3 && std::string_view(argv[1]) == "--watch";
  if (argc > 1 && !is_watched) {
    fmt::print(stderr, "{}: unknown flag '{}'; the only one is --watch FILE\n", program, argv[1]);
    return 2;
  }
  try {
    watch::watch_program(is_watched ? argv[2] : "", program, body);
    return 0;
  } catch (const Error& error) {
    std::fflush(stdout);
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return exit_code(error.code());
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 1;
  }
}

void on_ranks(const std::function<void(const Place&)>& work) {
  comm::run_ranks(kRanks, [&](comm::Communicator& group) {
    const int rank = group.rank();
    work({group, rank, Device{DeviceType::cpu, rank}});
  });
}

std::shared_ptr<nn::Sequential> make_net(Device device, std::uint64_t seed) {
  const auto net = nn::make_mlp("mlp:64-32-10", seed);
  net->to(device);
  return net;
}

tutorial::Rows load_rows() {
  return tutorial::load_digits(Device{});
}

Variable mean_loss(nn::Module& net, const tutorial::Rows& rows) {
  return cross_entropy(net(rows.x), rows.labels);
}

void average_gradients(const nn::Module& net, comm::Communicator& group) {
  for (const Variable& parameter : net.parameters()) {
    group.all_reduce(parameter.grad(), {.op = comm::ReduceOp::average});
  }
}

void report(nn::Module& net, const Place& place) {
  if (place.rank != 0) return;
  const data::LabelledTensors test = datasets::load_digits().test;
  fmt::print("{:.1f} % of the {} test digits recognised\n", 100 * nn::accuracy(net, test),
             test.num_rows());
}

}  // namespace lockstep::bugs
