#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/nn/layers.h"
#include "no_sync.h"
#include "tutorials/labs/host/subject.h"
#include "tutorials/labs/host/tensors.h"
#include "tutorials/labs/lab.h"

namespace {

using lockstep::comm::Communicator;
using nlohmann::json;

std::shared_ptr<lockstep::nn::Linear> make_layer(const json& inputs) {
  const lockstep::Tensor weight = lab::matrix_of(inputs.at("weight"));
  lockstep::Rng unused(0);
  const auto layer = std::make_shared<lockstep::nn::Linear>(
      weight.size(1), weight.size(0), unused,
      lockstep::nn::LinearOptions{.dtype = lockstep::DType::float64});
  layer->set_parameters({lab::leaf(weight), lab::leaf(lab::vector_of(inputs.at("bias")))});
  return layer;
}

json run_rank(const json& inputs, const json& rows, Communicator& group) {
  const auto layer = make_layer(inputs);
  lockstep::parallel::Ddp model(layer, group);
  std::vector<lab::MicroBatch> micro_batches;
  for (const json& micro : rows) {
    micro_batches.push_back({lab::matrix_of(micro.at("x")), lab::matrix_of(micro.at("target"))});
  }
  std::size_t num_before = 0;
  for (int step = 0; step < inputs.at("steps").get<int>(); ++step) {
    model.zero_grad();
    num_before = model.reducer().num_all_reduces();
    if (inputs.contains("weight_of_loss")) {
      lab::backward_of(model, micro_batches.at(0), inputs.at("weight_of_loss"));
    } else {
      lab::accumulate(model, micro_batches);
    }
  }
  return {{"weight", lab::numbers_of(layer->weight().grad())},
          {"bias", lab::numbers_of(layer->bias().grad())},
          {"all_reduces", model.reducer().num_all_reduces() - num_before}};
}

}  // namespace

// inputs: {"weight", "bias", "ranks": for each a list of {"x", "target"}, "steps": how often all of
// it is done, with gradients cleared before} and perhaps "weight_of_loss", for backward_of() of the
// first. answer, for each rank: {"weight", "bias": the
// gradients, "all_reduces": of the last step}.
extern "C" void lab_subject(const json& inputs, json& answer) {
  const json& ranks = inputs.at("ranks");
  std::vector<json> answers(ranks.size());
  std::vector<std::exception_ptr> blanks(ranks.size());  // run_ranks would make Errors of them
  const auto rethrow_blank = [&blanks] {
    for (const std::exception_ptr& blank : blanks) {
      if (blank) std::rethrow_exception(blank);
    }
  };
  try {
    lockstep::comm::run_ranks(static_cast<int>(ranks.size()), [&](Communicator& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      try {
        answers[rank] = run_rank(inputs, ranks[rank], group);
      } catch (const lab::NotDone&) {
        blanks[rank] = std::current_exception();
      }
    });
  } catch (const lockstep::Error&) {
    rethrow_blank();  // because of which the other ranks failed
    throw;
  }
  rethrow_blank();
  answer = answers;
}
