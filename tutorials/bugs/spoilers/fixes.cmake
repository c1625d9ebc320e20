# Spoilers. fix(PROGRAM WRONG RIGHT [WRONG RIGHT]...): each wrong text stands in the program exactly once, and the right
# one takes its place. README.md beside this file explains the mistakes.
fix(bug_01
[[
  const auto net = make_net(place.device, /*seed=*/place.rank);
]]
[[
  const auto net = make_net(place.device, /*seed=*/place.rank);
  for (const Variable& parameter : net->parameters()) place.group.broadcast(parameter.value(), 0);
]])

fix(bug_02 [[{.op = comm::ReduceOp::sum}]] [[{.op = comm::ReduceOp::average}]])

fix(bug_03
[[
#include "engine/optim/optimizer.h"
]]
[[
#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"
]]
[[
    mean_loss(net, mine).backward();
]]
[[
    const double share = 1.0 * mine.count() / batch.count();
    scale(mean_loss(net, mine), share * kRanks).backward();
]])

fix(bug_04
[[.shuffle = true,]]
[[.shuffle = true, .rank = place.rank, .world_size = kRanks,]])

# PyTorch: sampler.set_epoch(epoch).
fix(bug_05 [[loader.start_epoch(0)]] [[loader.start_epoch(epoch)]])

fix(bug_06
[[
      second = half_loss(2 * step + 1);
    }
]]
[[
    }  // from here on gradients are reduced
    second = half_loss(2 * step + 1);
]])

fix(bug_07 [[if (micro == 0)]] [[if (micro == 1)]])

fix(bug_08 [[Buffers::keep]] [[Buffers::broadcast]])

fix(bug_09 [[mine.count() / kOwnBatch]] [[732 / kOwnBatch]])

fix(bug_10
[[
void train_rank(const Place& place) {
]]
[[
double mean_over_ranks(double value, comm::Communicator& group) {
  const Tensor all = Tensor::from(std::vector<double>{value}, {1}, Device{});
  group.all_reduce(all, {.op = comm::ReduceOp::average});
  return all.item();
}

void train_rank(const Place& place) {
]]
[[
    if (place.rank == 0) fmt::print(]]
[[
    loss = mean_over_ranks(loss, place.group);
    if (place.rank == 0) fmt::print(]])

fix(bug_11
[[load_state_dict(*resumed, saved,]]
[[load_state_dict(*resumed, nn::strip_prefix(saved, "module."),]])

# One chunk for each rank: n - 1 steps add, n - 1 more hand the finished chunks round.
fix(bug_12
[[
#include "engine/optim/optimizer.h"
]]
[[
#include "engine/optim/optimizer.h"
#include "engine/plan/collective_plan.h"
]]
[[
  const int n = ring.world_size(), right = (ring.rank() + 1) % n, left = (ring.rank() + n - 1) % n;
  Tensor passing = sum.clone();
  for (int step = 0; step < n - 1; ++step) {
    const Tensor arrived = Tensor::empty_like(sum);
    ring.send(passing, right);
    ring.recv(arrived, left);
    sum += arrived;
    passing = arrived;
  }
]]
[[
  const int n = ring.world_size(), me = ring.rank();
  const auto chunk = [&](int number) {
    const auto part = plan::even_chunk(sum.num_elements(), n, (number + 2 * n) % n);
    return sum.slice(part.offset, {part.count});
  };
  for (int step = 0; step < 2 * (n - 1); ++step) {
    const Tensor mine = chunk(me - step - 1), next = chunk(me - step - 2);
    const Tensor arrived = Tensor::empty_like(next);
    ring.send(mine, (me + 1) % n);
    ring.recv(arrived, (me + n - 1) % n);
    if (step < n - 1) next += arrived;
    if (step >= n - 1) next.copy_from(arrived);
  }
]])

fix(bug_13
[[
    if (dynamic_cast<const nn::Linear*>(layer.get()) == nullptr) continue;
]]
[[]])

fix(bug_14
[[schedule.learning_rate(sgd.learning_rate(), step)]]
[[schedule.learning_rate(kRate, step)]])

fix(bug_15
[[nn::save_weights(path]] [[if (place.rank == 0) nn::save_weights(path]])

fix(bug_16 [[DeviceType::cpu, me.rank()]] [[DeviceType::cpu, me.environment().local_rank]])

fix(bug_17
[[
  parallel::Ddp net(model, place.group);
  net.to(place.device);
]]
[[
  model->to(place.device);
  parallel::Ddp net(model, place.group);
]])

# One wrapper at a time.
fix(bug_18
[[
  const std::shared_ptr<parallel::Ddp> trained = train(model, place, digits);
  train(trained, place, digits);
]]
[[
  train(model, place, digits);
  train(model, place, digits);
]])

# The loop counts, on the module that lives on.
fix(bug_19
[[
    num_rows_ += x.shape()[0];
]]
[[]]
[[
  int num_rows() const]]
[[
  void count(int rows) { num_rows_ += rows; }
  int num_rows() const]]
[[
    sgd.step();
]]
[[
    sgd.step();
    model->count(batch.count());
]])
