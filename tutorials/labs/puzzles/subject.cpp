// Writes down what a submission tells each GPU; `lockstep grade` then runs it (rules.h, real.h).
#include <stdexcept>

#include "tutorials/labs/host/subject.h"
#include "tutorials/labs/puzzles/verbs.h"
#include "tutorials/labs/schedule.h"

namespace {

using lab::Op;

class Writer final : public lab::Gpu {
 public:
  Writer(const nlohmann::json& sizes, int rank) : sizes_(sizes), rank_(rank) {}

  const nlohmann::json& verbs() const { return verbs_; }

  int rank() const override { return rank_; }
  int world_size() const override { return sizes_.at("gpus"); }
  int num_layers() const override { return sizes_.at("layers"); }
  int num_micro_batches() const override { return sizes_.at("micro_batches"); }

  void load(int layer, lab::Keep keep) override { add(Op::load, layer, -1, int(keep)); }
  void forward(int layer, int micro) override { add(Op::forward, layer, micro); }
  void backward(int layer, int micro) override { add(Op::backward, layer, micro); }
  lab::Work all_reduce(int layer) override { return start(Op::all_reduce, layer); }
  lab::Work reduce_scatter(int layer) override { return start(Op::reduce_scatter, layer); }
  lab::Work all_gather(int layer) override { return start(Op::all_gather, layer); }
  void wait(lab::Work work) override { add(Op::wait, -1, -1, work.number); }
  void update(int layer) override { add(Op::update, layer); }
  void free_parameters(int layer) override { add(Op::free_parameters, layer); }
  void free_gradient(int layer) override { add(Op::free_gradient, layer); }
  void free_activation(int layer, int micro) override { add(Op::free_activation, layer, micro); }
  void send_activation(int layer, int micro, int to) override {
    add(Op::send_activation, layer, micro, to);
  }
  void receive_activation(int layer, int micro, int from) override {
    add(Op::receive_activation, layer, micro, from);
  }
  void send_gradient(int layer, int micro, int to) override {
    add(Op::send_gradient, layer, micro, to);
  }
  void receive_gradient(int layer, int micro, int from) override {
    add(Op::receive_gradient, layer, micro, from);
  }

 private:
  void add(Op op, int layer, int micro_batch = -1, int other = -1) {
    if (verbs_.size() >= lab::kMostVerbs) {
      throw std::runtime_error("rank " + std::to_string(rank_) + " has more than " +
                               std::to_string(lab::kMostVerbs) + " calls in its schedule");
    }
    verbs_.push_back({int(op), layer, micro_batch, other});
  }
  lab::Work start(Op op, int layer) {
    add(op, layer);
    return {num_works_++};
  }

  const nlohmann::json& sizes_;
  const int rank_;
  int num_works_ = 0;
  nlohmann::json verbs_ = nlohmann::json::array();
};

}  // namespace

// inputs: PuzzleSizes as JSON. answer: Programs as JSON.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  answer = nlohmann::json::array();
  for (int rank = 0; rank < inputs.at("gpus").get<int>(); ++rank) {
    Writer gpu(inputs, rank);
    lab::schedule(gpu);
    answer.push_back(gpu.verbs());
  }
}
