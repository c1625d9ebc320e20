// 00: How does a data-parallel training engine work, from the tensor to DDP?
//
// This file is the whole engine once more, small enough to read in one go, from top to bottom:
//
//   1. a tensor                          5. DataParallel: scatter, replicate, parallel_apply,
//   gather
//   2. a tape, which makes gradients     6. ranks, and the ring all-reduce
//   3. a model and an optimizer          7. DDP: buckets of gradients, reduced during backward
//   4. training on one device            8. all ways compared, with each other and with the engine
//
// It uses the standard library, and includes nothing of the engine. engine_weights.h provides
// the digits, the numbers that training starts from, and the engine's weights for the last check.
//
// You will see: a model trained on one device, by DataParallel and by DDP on 2 and 4 devices; the
// time of an epoch for each; and that all of them end with the weights of one device, and with
// those of the engine.
//
// Run:  00_whole_engine [--hidden 128] [--bucket-kib 8] [--fast]
//
// Expected output with --fast: tutorials/expected/00.txt

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutorials/engine_weights.h"

namespace {

using lockstep::tutorial::Digits;
using lockstep::tutorial::Settings;
using lockstep::tutorial::Weights;

// ─── 1. A tensor ────────────────────────────────────────────────────────────────────────────────

// Numbers in rows and columns. A bias or a loss has one row.
struct Tensor {
  Tensor() = default;
  Tensor(std::size_t rows, std::size_t columns)
      : num_rows(rows), num_columns(columns), values(rows * columns) {}

  std::span<double> row(std::size_t r) { return {&values[r * num_columns], num_columns}; }
  std::span<const double> row(std::size_t r) const {
    return {&values[r * num_columns], num_columns};
  }

  std::size_t num_rows = 0;
  std::size_t num_columns = 0;
  std::vector<double> values;  // row by row
};

// sum += factor * terms
void add_scaled(std::span<double> sum, double factor, std::span<const double> terms) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * terms[i];
}

Tensor scaled(double factor, Tensor x) {
  for (double& value : x.values) value *= factor;
  return x;
}

// In the engine: engine/tensor/tensor.h, with more dimensions and types, on CPUs and GPUs.

// ─── 2. A tape, which makes gradients ───────────────────────────────────────────────────────────

// A tensor, and the gradient of the loss with respect to it.
struct Variable {
  void add_gradient(const Tensor& term) {
    if (grad.values.empty()) grad = Tensor(value.num_rows, value.num_columns);
    add_scaled(grad.values, 1, term.values);
    if (on_grad_ready) on_grad_ready();  // one term is all: here each parameter is used once
  }

  Tensor value;
  Tensor grad = {};                          // empty before backward
  bool requires_grad = true;                 // false for the rows of a batch
  std::string name = {};                     // of a parameter
  std::function<void()> on_grad_ready = {};  // the gradient hook, for section 7
};

// Remembers the operations of a forward pass. The backward pass goes through them in reverse order,
// and each turns the gradient of its output into the gradients of its inputs: the chain rule.
class Tape {
 public:
  using BackwardFunction = std::function<void(const Variable& output)>;

  // The output lives as long as the tape.
  Variable& record(Tensor output, BackwardFunction backward) {
    operations_.push_back({{.value = std::move(output)}, std::move(backward)});
    return operations_.back().output;
  }

  // From the gradient of the last output to the gradients of all parameters.
  void backward(const Tensor& gradient) {
    operations_.back().output.add_gradient(gradient);
    for (auto operation = operations_.rbegin(); operation != operations_.rend(); ++operation) {
      operation->backward(operation->output);
    }
    if (at_end_of_backward) at_end_of_backward();
  }

  std::function<void()> at_end_of_backward = {};  // section 7 needs this, too

 private:
  struct Operation {
    Variable output;
    BackwardFunction backward;
  };

  std::deque<Operation> operations_;  // a deque, since its elements stay where they are
};

// y = x W^T + b, with x [rows, in], W [out, in], b [1, out] and y [rows, out].
Tensor linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y(x.num_rows, weight.num_rows);
  for (std::size_t r = 0; r < y.num_rows; ++r) {
    for (std::size_t o = 0; o < y.num_columns; ++o) {
      const auto row = x.row(r);
      y.row(r)[o] =
          std::inner_product(row.begin(), row.end(), weight.row(o).begin(), bias.values[o]);
    }
  }
  return y;
}

// dW = dy^T x
Tensor weight_gradient(const Tensor& dy, const Tensor& x) {
  Tensor dw(dy.num_columns, x.num_columns);
  for (std::size_t r = 0; r < x.num_rows; ++r) {
    for (std::size_t o = 0; o < dw.num_rows; ++o) add_scaled(dw.row(o), dy.row(r)[o], x.row(r));
  }
  return dw;
}

// db = the sum of dy's rows
Tensor bias_gradient(const Tensor& dy) {
  Tensor db(1, dy.num_columns);
  for (std::size_t r = 0; r < dy.num_rows; ++r) add_scaled(db.row(0), 1, dy.row(r));
  return db;
}

// dx = dy W
Tensor input_gradient(const Tensor& dy, const Tensor& weight) {
  Tensor dx(dy.num_rows, weight.num_columns);
  for (std::size_t r = 0; r < dx.num_rows; ++r) {
    for (std::size_t o = 0; o < weight.num_rows; ++o) {
      add_scaled(dx.row(r), dy.row(r)[o], weight.row(o));
    }
  }
  return dx;
}

Variable& linear(Tape& tape, Variable& x, Variable& weight, Variable& bias) {
  const auto backward = [&](const Variable& y) {
    bias.add_gradient(bias_gradient(y.grad));
    weight.add_gradient(weight_gradient(y.grad, x.value));
    if (x.requires_grad) x.add_gradient(input_gradient(y.grad, weight.value));
  };
  return tape.record(linear_forward(x.value, weight.value, bias.value), backward);
}

// y = max(x, 0). Where x was cut off, it gets no gradient.
Variable& relu(Tape& tape, Variable& x) {
  Tensor output = x.value;
  for (double& value : output.values) value = std::max(value, 0.0);
  return tape.record(std::move(output), [&x](const Variable& y) {
    Tensor dx = y.grad;
    for (std::size_t i = 0; i < dx.values.size(); ++i) {
      if (y.value.values[i] <= 0) dx.values[i] = 0;
    }
    x.add_gradient(dx);
  });
}

// Turns each row of outputs into probabilities: positive, with a sum of 1.
Tensor softmax(const Tensor& outputs) {
  Tensor probabilities = outputs;
  for (std::size_t r = 0; r < outputs.num_rows; ++r) {
    const auto row = probabilities.row(r);
    const double largest = *std::max_element(row.begin(), row.end());
    for (double& value : row) value = std::exp(value - largest);  // so that none overflows
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& value : row) value /= sum;
  }
  return probabilities;
}

// The mean over the batch of -log(the probability of the right label). A device that has only a
// shard of the batch also divides by the rows of the whole batch: then the losses of all devices
// add up to the loss of one device, and so do their gradients.
Variable& cross_entropy(Tape& tape, Variable& outputs, const std::vector<int>& labels,
                        std::size_t batch_rows) {
  const double share = 1.0 / static_cast<double>(batch_rows);
  Tensor dx = softmax(outputs.value);  // becomes the probabilities minus 1 for the right label
  Tensor loss(1, 1);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    double& right = dx.row(r)[static_cast<std::size_t>(labels[r])];
    loss.values[0] -= share * std::log(right);
    right -= 1;
  }
  return tape.record(std::move(loss), [&outputs, share, dx](const Variable& y) {
    outputs.add_gradient(scaled(share * y.grad.values[0], dx));
  });
}

// loss.backward() in PyTorch. The gradient of the loss with respect to itself is 1.
void backward_from_loss(Tape& tape) {
  Tensor one(1, 1);
  one.values[0] = 1;
  tape.backward(one);
}

// In the engine: engine/autograd/variable.h and backward.cpp, for graphs in which a value is used
// more than once, and on several devices at a time. engine/autograd/ops has the operations.

// ─── 3. A model and an optimizer ────────────────────────────────────────────────────────────────

// A model, or something around a model that is used like one: DataParallel, Ddp.
class Module {
 public:
  virtual ~Module() = default;
  virtual Variable& forward(Tape& tape, Variable& x) = 0;
  virtual std::vector<Variable*> parameters() = 0;
};

struct Linear {
  Linear(const std::string& name, std::size_t in, std::size_t out)
      : weight{.value = Tensor(out, in), .name = name + ".weight"},
        bias{.value = Tensor(1, out), .name = name + ".bias"} {}

  Variable& forward(Tape& tape, Variable& x) { return linear(tape, x, weight, bias); }

  Variable weight;
  Variable bias;
};

// Linear, ReLU, Linear: from the 64 pixels of a digit to ten numbers. The largest is that of the
// digit which the model sees.
class Model : public Module {
 public:
  Model(const Settings& settings, const Weights& weights)
      : first_("first", 64, static_cast<std::size_t>(settings.hidden)),
        second_("second", static_cast<std::size_t>(settings.hidden), 10) {
    const auto all = parameters();
    for (std::size_t p = 0; p < all.size(); ++p) all[p]->value.values = weights[p];
  }

  Variable& forward(Tape& tape, Variable& x) override {
    Variable& hidden = relu(tape, first_.forward(tape, x));
    return second_.forward(tape, hidden);
  }

  std::vector<Variable*> parameters() override {
    return {&first_.weight, &first_.bias, &second_.weight, &second_.bias};
  }

  Weights weights() {
    Weights all;
    for (const Variable* parameter : parameters()) all.push_back(parameter->value.values);
    return all;
  }

 private:
  Linear first_;
  Linear second_;
};

// Stochastic gradient descent with momentum: every parameter takes a step against a running sum of
// its gradients, in which old gradients count less and less.
class Sgd {
 public:
  Sgd(std::vector<Variable*> parameters, const Settings& settings)
      : parameters_(std::move(parameters)),
        learning_rate_(settings.learning_rate),
        momentum_(settings.momentum) {
    for (const Variable* parameter : parameters_) {
      running_sums_.emplace_back(parameter->value.values.size());
    }
  }

  void zero_grad() {
    for (Variable* parameter : parameters_) parameter->grad = Tensor();
  }

  void step() {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      std::vector<double>& sum = running_sums_[p];
      for (double& value : sum) value *= momentum_;
      add_scaled(sum, 1, parameters_[p]->grad.values);
      add_scaled(parameters_[p]->value.values, -learning_rate_, sum);
    }
  }

 private:
  std::vector<Variable*> parameters_;
  double learning_rate_;
  double momentum_;
  std::vector<std::vector<double>> running_sums_;  // of each parameter's gradients
};

// In the engine: engine/nn and engine/optim, with convolutions, attention, batch norm and AdamW.

// ─── 4. Training ────────────────────────────────────────────────────────────────────────────────

// Rows begin ... end - 1.
struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// One of `count` shards of a batch. One device has the only shard.
struct Shard {
  std::size_t index = 0;
  std::size_t count = 1;

  // Equally many rows for each, or fewer for the last.
  RowRange rows_of(std::size_t num_rows) const {
    const std::size_t rows_each = (num_rows + count - 1) / count;
    const std::size_t begin = std::min(index * rows_each, num_rows);
    return {begin, std::min(begin + rows_each, num_rows)};
  }
};

struct Batch {
  Tensor x;                     // [rows of the shard, 64]
  std::vector<int> labels;      // of these rows
  std::size_t global_rows = 0;  // of all shards together
};

Batch take_rows(const Digits& digits, std::span<const std::size_t> rows) {
  Batch batch{Tensor(rows.size(), 64), {}, rows.size()};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::copy_n(&digits.pixels[rows[r] * 64], 64, batch.x.row(r).begin());
    batch.labels.push_back(digits.labels[rows[r]]);
  }
  return batch;
}

// An epoch uses every row once, in an order that is shuffled anew for each epoch. Cuts it into
// batches, and takes this shard of each.
std::vector<Batch> load_epoch(const Digits& digits, int epoch, const Settings& settings,
                              const Shard& shard) {
  const std::vector<std::size_t> order = lockstep::tutorial::epoch_order(epoch);
  const auto batch_size = static_cast<std::size_t>(settings.batch_size);
  std::vector<Batch> batches;
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    const std::size_t global_rows = std::min(batch_size, order.size() - begin);
    const RowRange rows = shard.rows_of(global_rows);
    const std::span all(order);
    batches.push_back(take_rows(digits, all.subspan(begin + rows.begin, rows.end - rows.begin)));
    batches.back().global_rows = global_rows;
  }
  return batches;
}

// The only training loop, whether the module is the model itself, DataParallel or Ddp. Returns the
// mean loss of each epoch.
std::vector<double> train(Module& module, const Digits& digits, const Settings& settings,
                          const Shard& shard = {}) {
  Sgd optimizer(module.parameters(), settings);
  std::vector<double> losses;
  for (int epoch = 0; epoch < settings.epochs; ++epoch) {
    double loss_sum = 0;
    for (const Batch& batch : load_epoch(digits, epoch, settings, shard)) {
      optimizer.zero_grad();
      Tape tape;
      Variable x{.value = batch.x, .requires_grad = false};
      Variable& outputs = module.forward(tape, x);
      const Variable& loss = cross_entropy(tape, outputs, batch.labels, batch.global_rows);
      backward_from_loss(tape);
      optimizer.step();
      loss_sum += loss.value.values[0] * static_cast<double>(batch.global_rows);
    }
    losses.push_back(loss_sum / static_cast<double>(digits.labels.size()));
  }
  return losses;
}

// The fraction of the digits that the model recognises.
double accuracy(Module& model, const Digits& digits) {
  std::vector<std::size_t> all_rows(digits.labels.size());
  std::iota(all_rows.begin(), all_rows.end(), std::size_t{0});
  Tape tape;
  Variable x{.value = take_rows(digits, all_rows).x, .requires_grad = false};
  const Tensor& outputs = model.forward(tape, x).value;
  std::size_t num_right = 0;
  for (std::size_t r = 0; r < outputs.num_rows; ++r) {
    const auto row = outputs.row(r);
    const auto guess = std::max_element(row.begin(), row.end()) - row.begin();
    if (guess == digits.labels[r]) ++num_right;
  }
  return static_cast<double>(num_right) / static_cast<double>(outputs.num_rows);
}

// In the engine: engine/data, with a thread that prepares the next batches, images and text.

// ─── 5. DataParallel: scatter, replicate, parallel_apply, gather ────────────────────────────────

// Calls work(0), work(1), ... at the same time, each on a thread of its own. Such a thread stands
// for a device here.
void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

// One model on several devices, for one loop on one thread. In every step device 0 hands out rows
// and weights, all devices compute, and device 0 collects outputs and, in backward, gradients.
// The loss and the optimizer are on device 0 alone.
class DataParallel : public Module {
 public:
  DataParallel(Model& model, const Settings& settings, std::size_t num_devices)
      : model_(model), settings_(settings), num_devices_(num_devices) {}

  Variable& forward(Tape& tape, Variable& x) override {
    const std::vector<Tensor> shards = scatter(x.value);
    replicate();
    parallel_apply(shards);
    return gather(tape);
  }

  std::vector<Variable*> parameters() override { return model_.parameters(); }

 private:
  // A copy of the model, and what its device needs for forward and backward.
  struct Replica {
    Model model;
    Tape tape = {};
    Variable x = {};
    Variable* output = nullptr;
  };

  // Cuts the rows of a tensor into one shard per device.
  std::vector<Tensor> scatter(const Tensor& x) const {
    std::vector<Tensor> shards;
    for (std::size_t device = 0; device < num_devices_; ++device) {
      const RowRange rows = Shard{device, num_devices_}.rows_of(x.num_rows);
      Tensor& shard = shards.emplace_back(rows.end - rows.begin, x.num_columns);
      for (std::size_t r = rows.begin; r < rows.end; ++r) {
        std::ranges::copy(x.row(r), shard.row(r - rows.begin).begin());
      }
    }
    return shards;
  }

  // Copies the model to every device. The replicas of the step before are thrown away.
  void replicate() {
    replicas_.clear();
    for (std::size_t device = 0; device < num_devices_; ++device) {
      replicas_.push_back({.model = Model(settings_, model_.weights())});
    }
  }

  // Every replica computes its outputs, all at the same time.
  void parallel_apply(const std::vector<Tensor>& shards) {
    run_in_parallel(num_devices_, [&](std::size_t device) {
      Replica& replica = replicas_[device];
      replica.x = {.value = shards[device], .requires_grad = false};
      replica.output = &replica.model.forward(replica.tape, replica.x);
    });
  }

  // Joins the rows of all outputs into one tensor, on device 0.
  Variable& gather(Tape& tape) {
    Tensor all(0, replicas_[0].output->value.num_columns);
    for (const Replica& replica : replicas_) {
      const Tensor& part = replica.output->value;
      all.num_rows += part.num_rows;
      all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    }
    return tape.record(std::move(all), [this](const Variable& y) { backward(y.grad); });
  }

  // The same in reverse: the gradient of gather is a scatter, then every replica goes backward, and
  // the gradient of replicate is a sum over the replicas, on device 0.
  void backward(const Tensor& gradient) {
    const std::vector<Tensor> shards = scatter(gradient);
    run_in_parallel(num_devices_,
                    [&](std::size_t device) { replicas_[device].tape.backward(shards[device]); });
    for (Replica& replica : replicas_) {
      const auto to = parameters(), from = replica.model.parameters();
      for (std::size_t p = 0; p < to.size(); ++p) to[p]->add_gradient(from[p]->grad);
    }
  }

  Model& model_;
  Settings settings_;
  std::size_t num_devices_;
  std::deque<Replica> replicas_;
};

// In the engine: engine/parallel/data_parallel/stages.h, with threads that stay, and with GPUs.

// ─── 6. Ranks, and the ring all-reduce ──────────────────────────────────────────────────────────

// Messages from one rank to another, which arrive in the order in which they were sent.
class Mailbox {
 public:
  void put(std::vector<double> message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    has_message_.notify_one();
  }

  // Waits for a message.
  std::vector<double> take() {
    std::unique_lock lock(mutex_);
    has_message_.wait(lock, [this] { return !messages_.empty(); });
    std::vector<double> message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_message_;
  std::deque<std::vector<double>> messages_;
};

// A rank is one of several that run the same program, each with a model of its own. Ranks share
// nothing, and only send each other messages.
class Communicator {
 public:
  // mailboxes: from every rank to every rank.
  Communicator(std::size_t rank, std::size_t world_size, std::deque<Mailbox>& mailboxes)
      : rank_(rank), world_size_(world_size), mailboxes_(mailboxes) {}

  std::size_t rank() const { return rank_; }
  std::size_t world_size() const { return world_size_; }

  // Does not wait for the receiver.
  void send(std::span<const double> values, std::size_t to) {
    mailboxes_[rank_ * world_size_ + to].put({values.begin(), values.end()});
  }

  std::vector<double> recv(std::size_t from) {
    return mailboxes_[from * world_size_ + rank_].take();
  }

 private:
  std::size_t rank_;
  std::size_t world_size_;
  std::deque<Mailbox>& mailboxes_;
};

// Runs work as every rank. A rank is a thread here; in PyTorch it is a process.
void run_ranks(std::size_t world_size, const std::function<void(Communicator&)>& work) {
  std::deque<Mailbox> mailboxes(world_size * world_size);
  run_in_parallel(world_size, [&](std::size_t rank) {
    Communicator ranks(rank, world_size, mailboxes);
    work(ranks);
  });
}

// All ranks get the values of rank 0.
void broadcast(Communicator& ranks, std::vector<double>& values) {
  if (ranks.rank() != 0) {
    values = ranks.recv(0);
    return;
  }
  for (std::size_t to = 1; to < ranks.world_size(); ++to) ranks.send(values, to);
}

// All ranks get the sum of their buffers. Each buffer is cut into one chunk per rank, and every
// rank only sends to the next one. Chunks first travel around the ring and are added up on the way,
// until every rank has one chunk that is complete; then the complete chunks travel around the ring.
// So a rank sends less than twice its buffer, however many ranks there are.
void ring_all_reduce(Communicator& ranks, std::span<double> buffer) {
  const std::size_t n = ranks.world_size(), me = ranks.rank();
  const std::size_t next = (me + 1) % n, previous = (me + n - 1) % n;
  const auto chunk = [&](std::size_t number) {  // counted around the ring: n is chunk 0 again
    const std::size_t c = number % n;
    const std::size_t begin = c * buffer.size() / n, end = (c + 1) * buffer.size() / n;
    return buffer.subspan(begin, end - begin);
  };
  for (std::size_t step = 1; step < n; ++step) {  // reduce-scatter: add and pass on
    ranks.send(chunk(me + n - step), next);
    add_scaled(chunk(me + 2 * n - step - 1), 1, ranks.recv(previous));
  }                                               // now chunk number `me` is complete
  for (std::size_t step = 1; step < n; ++step) {  // all-gather: pass complete chunks on
    ranks.send(chunk(me + n - step + 1), next);
    std::ranges::copy(ranks.recv(previous), chunk(me + n - step).begin());
  }
}

// In the engine: engine/plan/ring.cpp and engine/comm, with processes, TCP, NCCL and other plans.

// ─── 7. DDP: buckets of gradients, reduced during backward ──────────────────────────────────────

// A thread for communication, beside the one that computes. It does one task after the other.
class CommunicationStream {
 public:
  ~CommunicationStream() {
    enqueue({});  // the empty task ends the thread
    thread_.join();
  }

  void enqueue(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  // Returns when all tasks are done.
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = tasks_.front();
      if (!task) return;
      lock.unlock();
      task();
      lock.lock();
      tasks_.pop_front();  // only now: it was not done before
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_{[this] { run(); }};  // the last member, since it uses the others
};

// Parameters whose gradients travel together.
struct Bucket {
  std::vector<Variable*> parameters;
  std::size_t num_bytes = 0;
  std::size_t num_pending = 0;  // gradients that this backward pass has not computed yet
};

// From the last parameter to the first, since backward computes their gradients in this order. A
// bucket takes parameters until it has the stated size.
std::vector<Bucket> make_buckets(Module& module, const Settings& settings) {
  std::vector<Bucket> buckets(1);
  const auto parameters = module.parameters();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const auto full_bytes = static_cast<std::size_t>(1024 * settings.bucket_kib);
    if (buckets.back().num_bytes >= full_bytes) buckets.emplace_back();
    buckets.back().parameters.push_back(*parameter);
    buckets.back().num_bytes += sizeof(double) * (*parameter)->value.values.size();
  }
  return buckets;
}

// Every rank trains its own model on its shard of each batch. Gradients are summed over the ranks,
// so that all models take the same steps. A bucket leaves as soon as its last gradient is ready:
// the communication thread reduces it, while this thread computes the gradients of the layers
// before. All ranks fill their buckets in the same order, so they all reduce the same one.
class Ddp : public Module {
 public:
  Ddp(Module& module, Communicator& ranks, const Settings& settings)
      : module_(module), ranks_(ranks), buckets_(make_buckets(module, settings)) {
    for (Variable* parameter : module.parameters()) broadcast(ranks, parameter->value.values);
    for (Bucket& bucket : buckets_) {
      for (Variable* parameter : bucket.parameters) {
        parameter->on_grad_ready = [this, &bucket] { count_gradient(bucket); };
      }
    }
  }

  ~Ddp() override {
    for (Variable* parameter : module_.parameters()) parameter->on_grad_ready = nullptr;
  }

  Variable& forward(Tape& tape, Variable& x) override {
    for (Bucket& bucket : buckets_) bucket.num_pending = bucket.parameters.size();
    tape.at_end_of_backward = [this] { stream_.synchronize(); };
    return module_.forward(tape, x);
  }

  std::vector<Variable*> parameters() override { return module_.parameters(); }

 private:
  void count_gradient(Bucket& bucket) {
    if (--bucket.num_pending > 0) return;
    stream_.enqueue([this, &bucket] { reduce(bucket); });
  }

  // On the communication thread.
  void reduce(const Bucket& bucket) {
    std::vector<double> buffer;  // all gradients, one behind the other
    for (const Variable* parameter : bucket.parameters) {
      const std::vector<double>& grad = parameter->grad.values;
      buffer.insert(buffer.end(), grad.begin(), grad.end());
    }
    ring_all_reduce(ranks_, buffer);
    auto sum = buffer.begin();
    for (Variable* parameter : bucket.parameters) {
      std::vector<double>& grad = parameter->grad.values;
      std::copy_n(sum, grad.size(), grad.begin());
      sum += static_cast<std::ptrdiff_t>(grad.size());
    }
  }

  Module& module_;
  Communicator& ranks_;
  std::vector<Bucket> buckets_;
  CommunicationStream stream_;
};

// In the engine: engine/parallel/ddp/grad_reducer.h; gradients lie in their buckets from the start.

// ─── 8. All ways compared, with each other and with the engine ──────────────────────────────────

using lockstep::tutorial::check_close;

constexpr double kTolerance = 1e-12;  // float64 rounds at 1e-16, in another order at each step
constexpr std::array<std::size_t, 2> kDeviceCounts = {2, 4};

struct Result {
  std::string name;  // of the way to train
  std::size_t num_devices = 1;
  Weights weights = {};
  double epoch_ms = 0;
};

Result measure(const std::string& way, std::size_t num_devices, const Settings& settings,
               const std::function<Weights()>& train_model) {
  const auto start = std::chrono::steady_clock::now();
  Weights weights = train_model();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  return {way, num_devices, std::move(weights), elapsed.count() / settings.epochs};
}

Model make_model(const Settings& settings, std::uint64_t seed = 0) {
  return {settings, lockstep::tutorial::initial_weights(settings, seed)};
}

Weights train_on_one_device(const Digits& digits, const Settings& settings) {
  Model model = make_model(settings);
  const std::vector<double> losses = train(model, digits, settings);
  for (std::size_t epoch = 0; epoch < losses.size(); ++epoch) {
    std::printf("epoch %2zu  loss %.4f\n", epoch + 1, losses[epoch]);
  }
  std::printf("%.1f %% of 297 digits that it has not seen are recognised\n",
              100 * accuracy(model, lockstep::tutorial::load_test_digits()));
  return model.weights();
}

Weights train_with_data_parallel(const Digits& digits, const Settings& settings,
                                 std::size_t num_devices) {
  Model model = make_model(settings);
  DataParallel data_parallel(model, settings, num_devices);
  train(data_parallel, digits, settings);
  return model.weights();
}

// Each rank draws weights of its own, and Ddp broadcasts those of rank 0. Returns the weights of
// the last rank.
Weights train_with_ddp(const Digits& digits, const Settings& settings, std::size_t num_devices) {
  Weights weights;
  run_ranks(num_devices, [&](Communicator& ranks) {
    Model model = make_model(settings, /*seed=*/ranks.rank());
    Ddp ddp(model, ranks, settings);
    train(ddp, digits, settings, {ranks.rank(), ranks.world_size()});
    if (ranks.rank() == num_devices - 1) weights = model.weights();
  });
  return weights;
}

double largest_difference(const Weights& a, const Weights& b) {
  double largest = 0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      const double difference = std::abs(a[p][i] - b[p][i]);
      if (std::isnan(difference)) return difference;
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

void print_rank(const char* when, std::size_t rank, const std::vector<double>& buffer) {
  std::printf("  rank %zu %s", rank, when);
  for (const double value : buffer) std::printf(" %5.0f", value);
  std::printf("\n");
}

// Element i of rank r is (i + 1) * 10^r, so the digits of a number tell which ranks are in it.
void show_ring() {
  std::vector<std::vector<double>> buffers;
  for (const double unit : {1.0, 10.0, 100.0, 1000.0}) {
    print_rank("has    ", buffers.size(),
               buffers.emplace_back(std::vector{1 * unit, 2 * unit, 3 * unit, 4 * unit, 5 * unit}));
  }
  run_ranks(buffers.size(),
            [&](Communicator& ranks) { ring_all_reduce(ranks, buffers[ranks.rank()]); });
  const std::vector<double> sum = {1111, 2222, 3333, 4444, 5555};
  for (std::size_t rank = 0; rank < buffers.size(); ++rank)
    print_rank("ends with", rank, buffers[rank]);
  lockstep::tutorial::check("every rank has the sum", std::ranges::count(buffers, sum) == 4);
}

void show_buckets(const Settings& settings) {
  Model model = make_model(settings);
  std::size_t number = 0;
  for (const Bucket& bucket : make_buckets(model, settings)) {
    std::printf("bucket %zu, %6zu B:", number++, bucket.num_bytes);
    for (const Variable* parameter : bucket.parameters) std::printf(" %s", parameter->name.c_str());
    std::printf("\n");
  }
}

// In this file and in the engine, with the same number of devices.
void compare_with_engine(const std::vector<Result>& results, const Settings& settings) {
  for (const int num_devices : {1, 2, 4}) {
    const Weights engine = lockstep::tutorial::train_through_engine(settings, num_devices);
    for (const Result& result : results) {
      if (static_cast<int>(result.num_devices) != num_devices) continue;
      check_close(
          "the engine's weights on " + std::to_string(num_devices) + ", and by " + result.name,
          largest_difference(result.weights, engine), kTolerance);
    }
  }
}

void run(const Settings& settings) {
  using lockstep::tutorial::step;
  const Digits digits = lockstep::tutorial::load_train_digits();
  step(1, "one device trains");
  std::vector<Result> results = {
      measure("one device", 1, settings, [&] { return train_on_one_device(digits, settings); })};
  const auto add = [&](const std::string& way, std::size_t num_devices, const auto& train_model) {
    results.push_back(measure(way + " on " + std::to_string(num_devices), num_devices, settings,
                              [&] { return train_model(digits, settings, num_devices); }));
    check_close("weights by " + results.back().name + ", and by one device",
                largest_difference(results.back().weights, results.front().weights), kTolerance);
  };

  step(2, "DataParallel trains, on 2 and on 4 devices");
  for (const std::size_t count : kDeviceCounts)
    add("DataParallel", count, train_with_data_parallel);

  step(3, "four ranks add up their buffers around a ring");
  show_ring();

  step(4, "DDP trains, on 2 and on 4 devices");
  show_buckets(settings);
  for (const std::size_t count : kDeviceCounts) add("DDP", count, train_with_ddp);

  step(5, "the time of an epoch");
  for (const Result& result : results) {
    std::printf("%-17s  %6.1f ms\n", result.name.c_str(), result.epoch_ms);
  }
  std::printf("All devices share this machine's cores: more devices than cores gain nothing.\n");

  step(6, "the same training through the engine");
  compare_with_engine(results, settings);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_with_flags(
      argc, argv, "How does a data-parallel training engine work, from the tensor to DDP?", run);
}
