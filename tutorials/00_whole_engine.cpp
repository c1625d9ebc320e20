// 00: How does a data-parallel training engine work, from the tensor to DDP?
//
// This file is the engine once more, small enough to be read from top to bottom:
//
//   1. a tensor
//   2. a tape, which turns a forward pass into gradients
//   3. a model and an optimizer
//   4. training
//   5. DataParallel: scatter, replicate, parallel apply, gather
//   6. ranks, and the ring all-reduce
//   7. DDP: buckets of gradients, reduced during backward
//   8. the comparison with one device, and with the engine
//
// It uses the standard library and includes nothing of the engine. engine_weights.h has the digits,
// the settings, the random numbers, and the weights that the engine ends with.
//
// You will see: one model trained on one device, then on 2 and 4 by DataParallel and by DDP; the
// time of an epoch of each; and that all end with the weights of one device, and of the engine.
//
// Run:  00_whole_engine [--hidden 128] [--bucket-kib 8] [--fast]
//
// Expected output with --fast: tutorials/expected/00.txt

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
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

namespace tutorial = lockstep::tutorial;
using tutorial::Digits;
using tutorial::Settings;
using tutorial::Weights;

constexpr std::size_t kPixels = 64;   // a digit's
constexpr std::size_t kClasses = 10;  // the digits 0 to 9

// ─── 1. A tensor ────────────────────────────────────────────────────────────────────────────────

// Numbers in rows and columns. A bias has one row, and a loss is a single number.
struct Tensor {
  Tensor() = default;
  Tensor(std::size_t rows, std::size_t columns, double fill = 0)
      : num_rows(rows), num_columns(columns), values(rows * columns, fill) {}

  std::span<double> row(std::size_t r) {
    return std::span(values).subspan(r * num_columns, num_columns);
  }
  std::span<const double> row(std::size_t r) const {
    return std::span(values).subspan(r * num_columns, num_columns);
  }

  std::size_t num_rows = 0;
  std::size_t num_columns = 0;
  std::vector<double> values;  // row by row
};

// sum += factor * terms
void add_scaled(std::span<double> sum, double factor, std::span<const double> terms) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * terms[i];
}

// In the engine: engine/tensor/tensor.h, with more dimensions and number types, and for GPUs.

// ─── 2. A tape, which turns a forward pass into gradients ───────────────────────────────────────

// A tensor, and the gradient of the loss with respect to it.
struct Variable {
  void add_gradient(const Tensor& term) {
    if (grad.values.empty()) grad = Tensor(value.num_rows, value.num_columns);
    add_scaled(grad.values, 1, term.values);
    if (on_grad_ready) on_grad_ready();  // Ddp sets it, where each gradient has one term
  }

  Tensor value;
  Tensor grad = {};                          // empty before the backward pass
  bool requires_grad = true;                 // false for the rows of a batch
  std::string name = {};                     // a parameter's
  std::function<void()> on_grad_ready = {};  // a hook, which section 7 needs
};

// Remembers the operations of a forward pass. The backward pass goes through them in reverse, and
// each turns the gradient of its output into the gradients of its inputs: the chain rule.
class Tape {
 public:
  using BackwardFunction = std::function<void(const Variable& output)>;

  // Returns the output as a variable, which lives as long as the tape.
  Variable& record(Tensor output, BackwardFunction backward) {
    operations_.push_back({{.value = std::move(output)}, std::move(backward)});
    return operations_.back().output;
  }

  // The last output is the loss. Its gradient with respect to itself is 1.
  void backward() { backward(Tensor(1, 1, 1.0)); }

  void backward(const Tensor& gradient_of_last_output) {
    operations_.back().output.add_gradient(gradient_of_last_output);
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

  std::deque<Operation> operations_;  // a deque never moves its elements, and others point to them
};

// y = x W^T + b, for x [rows, in], W [out, in], b [1, out] and y [rows, out].
Tensor linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y(x.num_rows, weight.num_rows);
  for (std::size_t r = 0; r < y.num_rows; ++r) {
    const auto row = x.row(r);
    for (std::size_t o = 0; o < y.num_columns; ++o) {
      const auto weights = weight.row(o);
      y.row(r)[o] = std::inner_product(row.begin(), row.end(), weights.begin(), bias.values[o]);
    }
  }
  return y;
}

// dW = dy^T x
Tensor weight_gradient(const Tensor& dy, const Tensor& x) {
  Tensor dw(dy.num_columns, x.num_columns);
  for (std::size_t r = 0; r < dy.num_rows; ++r) {
    for (std::size_t o = 0; o < dw.num_rows; ++o) add_scaled(dw.row(o), dy.row(r)[o], x.row(r));
  }
  return dw;
}

// db = the sum of the rows of dy
Tensor bias_gradient(const Tensor& dy) {
  Tensor db(1, dy.num_columns);
  for (std::size_t r = 0; r < dy.num_rows; ++r) add_scaled(db.values, 1, dy.row(r));
  return db;
}

// dx = dy W
Tensor input_gradient(const Tensor& dy, const Tensor& weight) {
  Tensor dx(dy.num_rows, weight.num_columns);
  for (std::size_t r = 0; r < dy.num_rows; ++r) {
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

// y = max(x, 0). An element that was below 0 gets no gradient.
Variable& relu(Tape& tape, Variable& x) {
  Tensor output = x.value;
  for (double& value : output.values) value = std::max(value, 0.0);
  return tape.record(std::move(output), [&x](const Variable& y) {
    Tensor dx = y.grad;
    for (std::size_t i = 0; i < dx.values.size(); ++i) {
      if (x.value.values[i] <= 0) dx.values[i] = 0;
    }
    x.add_gradient(dx);
  });
}

// Turns each row into probabilities: positive numbers with a sum of 1.
Tensor softmax(const Tensor& x) {
  Tensor probabilities = x;
  for (std::size_t r = 0; r < x.num_rows; ++r) {
    const auto row = probabilities.row(r);
    const double largest = *std::max_element(row.begin(), row.end());
    for (double& value : row) value = std::exp(value - largest);  // at most 1: never infinite
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& value : row) value /= sum;
  }
  return probabilities;
}

// The mean of -log(probability of the right label) over the rows of the batch. A device that has
// only a shard of the batch divides by the rows of the whole batch, too: then the losses of all
// devices add up to the loss of one device, and their gradients to its gradients.
Variable& cross_entropy(Tape& tape, Variable& x, const std::vector<int>& labels,
                        std::size_t batch_rows) {
  const Tensor probabilities = softmax(x.value);
  Tensor loss(1, 1);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    loss.values[0] -= std::log(probabilities.row(r)[labels[r]]) / batch_rows;
  }
  const auto backward = [&x, &labels, batch_rows, probabilities](const Variable& y) {
    Tensor errors = probabilities;  // minus the right ones: 1 for the label, 0 for the others
    for (std::size_t r = 0; r < labels.size(); ++r) errors.row(r)[labels[r]] -= 1;
    Tensor dx(x.value.num_rows, x.value.num_columns);
    add_scaled(dx.values, y.grad.values[0] / batch_rows, errors.values);
    x.add_gradient(dx);
  };
  return tape.record(std::move(loss), backward);
}

// In the engine: engine/autograd, for every graph of operations, on several devices at a time; the
// arithmetic is in kernels/cpu.

// ─── 3. A model and an optimizer ────────────────────────────────────────────────────────────────

// A model; or DataParallel or Ddp, which wrap a model and are used like one.
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

// Linear, ReLU, Linear: from the pixels of a digit to ten numbers. The largest one says which digit
// the model sees. Layers have PyTorch's names: "0", "1" and "2"; ReLU has no parameters.
class Model : public Module {
 public:
  Model(const Settings& settings, const Weights& weights)
      : first_("0", kPixels, settings.hidden), second_("2", settings.hidden, kClasses) {
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

// Gradient descent with momentum: a parameter takes a step against a running sum of its gradients,
// in which older ones count less and less.
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
  std::vector<std::vector<double>> running_sums_;  // one for each parameter
};

// In the engine: engine/nn and engine/optim, with convolutions, attention, batch norm and AdamW.

// ─── 4. Training ────────────────────────────────────────────────────────────────────────────────

// A batch is cut into shards, one per device.
struct Shard {
  int index = 0;
  int count = 1;  // number of shards; one holds the whole batch
};

struct RowRange {
  std::size_t begin = 0;
  std::size_t count = 0;
};

// Every shard gets the same number of rows, except that the last ones may get fewer.
RowRange rows_of(const Shard& shard, std::size_t num_rows) {
  const std::size_t most = (num_rows + shard.count - 1) / shard.count;
  const std::size_t begin = std::min(shard.index * most, num_rows);
  return {begin, std::min(most, num_rows - begin)};
}

// The rows of one shard.
struct Batch {
  Tensor x;  // [rows, kPixels]
  std::vector<int> labels;
  std::size_t global_rows = 0;  // rows of all shards together
};

Batch take_rows(const Digits& digits, std::span<const std::size_t> rows, std::size_t global_rows) {
  Batch batch{Tensor(rows.size(), kPixels), {}, global_rows};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::copy_n(&digits.pixels[rows[r] * kPixels], kPixels, batch.x.row(r).begin());
    batch.labels.push_back(digits.labels[rows[r]]);
  }
  return batch;
}

// An epoch uses each row once, in a new order. Cuts it into batches, and takes a shard of each.
std::vector<Batch> load_epoch(const Digits& digits, int epoch, const Settings& settings,
                              const Shard& shard) {
  const std::vector<std::size_t> order = tutorial::epoch_order(epoch);
  const std::size_t batch_size = settings.batch_size;
  std::vector<Batch> batches;
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    const std::size_t global_rows = std::min(batch_size, order.size() - begin);
    const RowRange rows = rows_of(shard, global_rows);
    const auto of_shard = std::span(order).subspan(begin + rows.begin, rows.count);
    batches.push_back(take_rows(digits, of_shard, global_rows));
  }
  return batches;
}

// The training loop, the same for a model on one device, DataParallel and Ddp. Returns the mean
// loss of each epoch; that of a shard is its part of the mean.
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
      tape.backward();
      optimizer.step();
      loss_sum += loss.value.values[0] * batch.global_rows;
    }
    losses.push_back(loss_sum / digits.labels.size());
  }
  return losses;
}

// In the engine: engine/data, where a thread of its own prepares the next batches. The loop is the
// program's own: tutorials/03_train_model.cpp, tools/run/step.cpp.

// ─── 5. DataParallel: scatter, replicate, parallel apply, gather ────────────────────────────────

// Calls work(0), work(1), ... at the same time, each on a thread, which stands for a device.
void run_in_parallel(int num_devices, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int device = 0; device < num_devices; ++device) threads.emplace_back(work, device);
  for (std::thread& thread : threads) thread.join();
}

// There is one training loop, on device 0, and its forward and backward passes use all devices.
// Device 0 hands out rows and weights, all devices compute, and device 0 collects outputs and
// gradients. The loss and the optimizer are on device 0 alone.
class DataParallel : public Module {
 public:
  DataParallel(Model& model, const Settings& settings, int num_devices)
      : model_(model), settings_(settings), num_devices_(num_devices) {}

  Variable& forward(Tape& tape, Variable& x) override {
    const std::vector<Tensor> shards = scatter(x.value);
    replicate();
    parallel_apply(shards);
    return gather(tape);
  }

  std::vector<Variable*> parameters() override { return model_.parameters(); }

 private:
  // Everything that is on one device.
  struct Replica {
    Model model;
    Tape tape = {};
    Variable x = {};
    Variable* outputs = nullptr;
  };

  // Cuts the rows of a tensor into one shard per device.
  std::vector<Tensor> scatter(const Tensor& x) const {
    std::vector<Tensor> shards;
    for (int device = 0; device < num_devices_; ++device) {
      const RowRange rows = rows_of({device, num_devices_}, x.num_rows);
      Tensor& shard = shards.emplace_back(rows.count, x.num_columns);
      const auto first = x.values.begin() + rows.begin * x.num_columns;
      std::copy_n(first, shard.values.size(), shard.values.begin());
    }
    return shards;
  }

  // Copies the model to every device. The replicas of the last step are thrown away.
  void replicate() {
    replicas_.clear();
    for (int device = 0; device < num_devices_; ++device) {
      replicas_.push_back({.model = Model(settings_, model_.weights())});
    }
  }

  // Every replica goes forward with its shard, all at the same time.
  void parallel_apply(const std::vector<Tensor>& shards) {
    run_in_parallel(num_devices_, [&](int device) {
      Replica& replica = replicas_[device];
      replica.x = {.value = shards[device], .requires_grad = false};
      replica.outputs = &replica.model.forward(replica.tape, replica.x);
    });
  }

  // Joins the outputs of all replicas on device 0.
  Variable& gather(Tape& tape) {
    Tensor all(0, kClasses);
    for (const Replica& replica : replicas_) {
      const Tensor& part = replica.outputs->value;
      all.num_rows += part.num_rows;
      all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    }
    return tape.record(std::move(all), [this](const Variable& outputs) { backward(outputs.grad); });
  }

  // The same in reverse. The gradient of gather is a scatter; then every replica goes backward, all
  // at the same time; and the gradient of replicate is a sum over the replicas, on device 0.
  void backward(const Tensor& gradient) {
    const std::vector<Tensor> shards = scatter(gradient);
    run_in_parallel(num_devices_,
                    [&](int device) { replicas_[device].tape.backward(shards[device]); });
    for (Replica& replica : replicas_) {
      const auto sums = parameters(), terms = replica.model.parameters();
      for (std::size_t p = 0; p < sums.size(); ++p) sums[p]->add_gradient(terms[p]->grad);
    }
  }

  Model& model_;
  Settings settings_;
  int num_devices_;
  std::deque<Replica> replicas_;
};

// In the engine: engine/parallel/data_parallel, for GPUs too, with threads that live on.

// ─── 6. Ranks, and the ring all-reduce ──────────────────────────────────────────────────────────

// Messages from one rank to another. They arrive in the order in which they were sent.
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

// The connection of a rank to all others. Every rank has a device, a model and a training loop of
// its own: it shares nothing with the others, and they send each other messages.
class Communicator {
 public:
  // mailboxes: one from each rank to each rank.
  Communicator(int rank, int world_size, std::deque<Mailbox>& mailboxes)
      : rank_(rank), world_size_(world_size), mailboxes_(mailboxes) {}

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Does not wait for the receiver.
  void send(std::span<const double> values, int to) {
    mailboxes_[rank_ * world_size_ + to].put({values.begin(), values.end()});
  }

  std::vector<double> recv(int from) { return mailboxes_[from * world_size_ + rank_].take(); }

 private:
  int rank_;
  int world_size_;
  std::deque<Mailbox>& mailboxes_;
};

// Runs work as every rank. A rank is a thread here; in PyTorch it is a process.
void run_ranks(int world_size, const std::function<void(Communicator&)>& work) {
  std::deque<Mailbox> mailboxes(world_size * world_size);
  run_in_parallel(world_size, [&](int rank) {
    Communicator ranks(rank, world_size, mailboxes);
    work(ranks);
  });
}

// Every rank gets the values of rank 0.
void broadcast(Communicator& ranks, std::vector<double>& values) {
  if (ranks.rank() != 0) {
    values = ranks.recv(0);
    return;
  }
  for (int to = 1; to < ranks.world_size(); ++to) ranks.send(values, to);
}

// Every rank gets the sum of all buffers. Each buffer is cut into one chunk per rank, and each rank
// sends only to the next one. The chunks travel around the ring and are added up on the way, until
// every rank has one complete chunk; then the complete chunks travel around the ring. A rank sends
// less than two buffers, however many ranks there are.
void ring_all_reduce(Communicator& ranks, std::span<double> buffer) {
  const int n = ranks.world_size(), me = ranks.rank();
  const int next = (me + 1) % n, previous = (me + n - 1) % n;
  const auto chunk = [&](int number) {  // counted around the ring: -1 is the last one
    const std::size_t c = (number + 2 * n) % n;
    const std::size_t begin = buffer.size() * c / n, end = buffer.size() * (c + 1) / n;
    return buffer.subspan(begin, end - begin);
  };
  for (int step = 0; step < n - 1; ++step) {  // reduce-scatter: add and pass on
    ranks.send(chunk(me - 1 - step), next);
    add_scaled(chunk(me - 2 - step), 1, ranks.recv(previous));
  }                                           // now chunk number `me` is complete
  for (int step = 0; step < n - 1; ++step) {  // all-gather: pass the complete chunks on
    ranks.send(chunk(me - step), next);
    std::ranges::copy(ranks.recv(previous), chunk(me - 1 - step).begin());
  }
}

// In the engine: engine/plan/ring.cpp and engine/comm, between processes, hosts and GPUs, too.

// ─── 7. DDP: buckets of gradients, reduced during backward ──────────────────────────────────────

// A thread for communication, beside the one that computes. It does one task after another.
class CommunicationThread {
 public:
  ~CommunicationThread() {
    enqueue({});  // an empty task ends the thread
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
      tasks_.pop_front();  // not before, so that synchronize() waits for its end
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_{[this] { run(); }};  // the last member, since it uses the others
};

// Parameters whose gradients travel together: one long message takes less time than many short
// ones.
struct Bucket {
  std::vector<Variable*> parameters;
  std::size_t num_bytes = 0;
  std::size_t num_pending = 0;  // gradients that this backward pass has still to compute
};

// Fills one bucket after the other, with the last parameter first: backward computes gradients in
// this order.
std::vector<Bucket> make_buckets(Module& module, const Settings& settings) {
  std::vector<Bucket> buckets(1);
  const auto parameters = module.parameters();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (buckets.back().num_bytes >= 1024 * settings.bucket_kib) buckets.emplace_back();
    buckets.back().parameters.push_back(*parameter);
    buckets.back().num_bytes += sizeof(double) * (*parameter)->value.values.size();
  }
  return buckets;
}

// Every rank trains a model of its own on its shard of each batch. All start with the weights of
// rank 0, and gradients are summed over the ranks, so the models stay equal. (PyTorch and the
// engine average the gradients, because a rank's loss is the mean over its own rows there.)
//
// When the last gradient of a bucket is ready, the communication thread sums the bucket over the
// ranks, while this thread computes the gradients of the layers before: communication overlaps with
// backward. Buckets get full in the same order on all ranks, so all ranks reduce the same one.
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
    for (Variable* parameter : module_.parameters()) parameter->on_grad_ready = {};
  }

  Variable& forward(Tape& tape, Variable& x) override {
    for (Bucket& bucket : buckets_) bucket.num_pending = bucket.parameters.size();
    tape.at_end_of_backward = [this] { thread_.synchronize(); };
    return module_.forward(tape, x);
  }

  std::vector<Variable*> parameters() override { return module_.parameters(); }

 private:
  void count_gradient(Bucket& bucket) {
    --bucket.num_pending;
    if (bucket.num_pending == 0) thread_.enqueue([this, &bucket] { all_reduce(bucket); });
  }

  // Runs on the communication thread.
  void all_reduce(const Bucket& bucket) {
    std::vector<double> buffer;  // one gradient behind the other
    for (const Variable* parameter : bucket.parameters) {
      const std::vector<double>& grad = parameter->grad.values;
      buffer.insert(buffer.end(), grad.begin(), grad.end());
    }
    ring_all_reduce(ranks_, buffer);
    auto sum = buffer.begin();
    for (Variable* parameter : bucket.parameters) {
      std::vector<double>& grad = parameter->grad.values;
      std::copy_n(sum, grad.size(), grad.begin());
      sum += grad.size();
    }
  }

  Module& module_;
  Communicator& ranks_;
  std::vector<Bucket> buckets_;
  CommunicationThread thread_;
};

// In the engine: engine/parallel/ddp. Gradients are computed in their buckets, not copied; ranks
// agree on the order in which buckets start; and the thread of backward reduces the last bucket
// itself, when nothing is left to compute beside it. The communication thread is AsyncCalls in
// engine/comm/work.h.

// ─── 8. The comparison with one device, and with the engine ─────────────────────────────────────

using Clock = std::chrono::steady_clock;

constexpr double kTolerance = 1e-12;  // float64 has 16 digits, and only the order of sums differs

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Model make_model(const Settings& settings, int seed = 0) {
  return {settings, tutorial::initial_weights(settings, seed)};
}

Weights train_alone(const Digits& digits, const Settings& settings) {
  Model model = make_model(settings);
  const std::vector<double> losses = train(model, digits, settings);
  for (std::size_t epoch = 0; epoch < losses.size(); ++epoch) {
    std::printf("epoch %2zu  loss %.4f\n", epoch + 1, losses[epoch]);
  }
  return model.weights();
}

Weights train_by_data_parallel(const Digits& digits, const Settings& settings, int num_devices) {
  Model model = make_model(settings);
  DataParallel data_parallel(model, settings, num_devices);
  train(data_parallel, digits, settings);
  return model.weights();
}

// Each rank draws other weights, which Ddp replaces by those of rank 0. Returns the weights of the
// last rank.
Weights train_by_ddp(const Digits& digits, const Settings& settings, int num_devices) {
  Weights weights;
  run_ranks(num_devices, [&](Communicator& ranks) {
    Model model = make_model(settings, /*seed=*/ranks.rank());
    Ddp ddp(model, ranks, settings);
    train(ddp, digits, settings, {ranks.rank(), ranks.world_size()});
    if (ranks.rank() == num_devices - 1) weights = model.weights();
  });
  return weights;
}

std::string to_text(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) {
    text += ' ';
    text += std::to_string(std::lround(number));
  }
  return text;
}

// Element i of rank r is (i + 1) * 10^r, so the digits of a sum say which ranks are in it.
void show_ring() {
  std::vector<std::vector<double>> buffers;
  for (const double unit : {1, 10, 100, 1000}) {
    buffers.push_back({unit, 2 * unit, 3 * unit, 4 * unit, 5 * unit, 6 * unit});
  }
  std::vector<std::vector<double>> sums = buffers;
  run_ranks(4, [&](Communicator& ranks) { ring_all_reduce(ranks, sums[ranks.rank()]); });
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    const std::string before = to_text(buffers[rank]), after = to_text(sums[rank]);
    std::printf("rank %zu:%s ->%s\n", rank, before.c_str(), after.c_str());
  }
  const std::vector<double> sum = {1111, 2222, 3333, 4444, 5555, 6666};
  tutorial::check("every rank has the sum of all", std::ranges::count(sums, sum) == 4);
}

// Prints for each bucket when a backward pass on one device has computed the last of its gradients.
void show_buckets(const Digits& digits, const Settings& settings) {
  Model model = make_model(settings);
  const std::vector<Bucket> buckets = make_buckets(model, settings);
  std::vector<double> ready_ms(buckets.size());
  Clock::time_point start;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (Variable* parameter : buckets[b].parameters) {
      parameter->on_grad_ready = [&, b] { ready_ms[b] = milliseconds_since(start); };
    }
  }
  const Batch batch = load_epoch(digits, 0, settings, {})[0];
  Tape tape;
  Variable x{.value = batch.x, .requires_grad = false};
  cross_entropy(tape, model.forward(tape, x), batch.labels, batch.global_rows);
  start = Clock::now();
  tape.backward();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::printf("bucket %zu, %zu B, ready after %.2f ms:", b, buckets[b].num_bytes, ready_ms[b]);
    for (const Variable* parameter : buckets[b].parameters) {
      std::printf(" %s", parameter->name.c_str());
    }
    std::printf("\n");
  }
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

// The outcome of a way to train.
struct Result {
  std::string way;
  int num_devices = 1;
  Weights weights = {};
  double epoch_ms = 0;
};

void print_times(const std::vector<Result>& results) {
  for (const Result& result : results) {
    std::printf("%-17s %7.1f ms\n", result.way.c_str(), result.epoch_ms);
  }
  tutorial::say(
      "The devices are threads and share this machine's cores: where there are more devices than "
      "cores, they take turns. DataParallel starts new threads for each forward and each backward "
      "pass.");
}

// Trains once more, through the engine, on each number of devices.
void check_engine(const std::vector<Result>& results, const Settings& settings) {
  for (const int num_devices : {1, 2, 4}) {
    const Weights weights = tutorial::train_through_engine(settings, num_devices);
    for (const Result& result : results) {
      if (result.num_devices != num_devices) continue;
      tutorial::check_close("the engine's weights, and those by " + result.way,
                            largest_difference(result.weights, weights), kTolerance);
    }
  }
}

void print_answer(const std::vector<Result>& results) {
  const auto ms = [&](std::size_t i) { return std::to_string(std::lround(results[i].epoch_ms)); };
  tutorial::answer(
      "A tape turns a forward pass into gradients. DataParallel sums those of all devices on one "
      "of them, DDP around a ring while backward runs. An epoch took " +
          ms(0) + " ms on one device, " + ms(1) + " ms by DataParallel on 2, and " + ms(3) +
          " ms by DDP on 2. All end with the weights of the engine.",
      {{"--hidden 512", "Four times the work in a step: which of the ways gains by it?"},
       {"--bucket-kib 0.001", "One bucket per parameter, and so four all-reduces in a step."},
       {"--bucket-kib 1000", "One bucket, ready when backward ends: nothing overlaps."}});
}

void run(const Settings& settings) {
  const Digits digits = tutorial::load_digits();
  std::vector<Result> results;
  const auto measure = [&](const std::string& way, int num_devices, const auto& train_model) {
    const auto start = Clock::now();
    const Weights weights = train_model();
    results.push_back({way, num_devices, weights, milliseconds_since(start) / settings.epochs});
    if (num_devices == 1) return;
    tutorial::check_close("weights by " + way + ", and by one device",
                          largest_difference(weights, results[0].weights), kTolerance);
  };

  tutorial::step(1, "one device trains");
  measure("one device", 1, [&] { return train_alone(digits, settings); });

  tutorial::step(2, "DataParallel trains, on 2 and on 4 devices");
  measure("DataParallel on 2", 2, [&] { return train_by_data_parallel(digits, settings, 2); });
  measure("DataParallel on 4", 4, [&] { return train_by_data_parallel(digits, settings, 4); });

  tutorial::step(3, "four ranks sum their buffers around a ring");
  show_ring();

  tutorial::step(4, "DDP trains, on 2 and on 4 devices");
  show_buckets(digits, settings);
  measure("DDP on 2", 2, [&] { return train_by_ddp(digits, settings, 2); });
  measure("DDP on 4", 4, [&] { return train_by_ddp(digits, settings, 4); });

  tutorial::step(5, "the time of an epoch");
  print_times(results);

  tutorial::step(6, "the same training through the engine");
  check_engine(results, settings);
  print_answer(results);
}

// In the engine: `lockstep compare`, which trains your model and data in all these ways and more.

}  // namespace

int main(int argc, char** argv) {
  return tutorial::run_with_flags(
      argc, argv, "How does a data-parallel training engine work, from the tensor to DDP?", run);
}
