#include "tutorials/labs/puzzles/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "tutorials/labs/puzzles/holding.h"
#include "tutorials/labs/puzzles/record.h"

namespace lab {
namespace {

// A collective of a group, from its first call on.
struct Call {
  Op op = Op::all_reduce;
  int layer = 0;
  int first = 0;                        // the rank that called it first
  std::vector<std::size_t> calls = {};  // their pieces
  std::vector<int> has_called = {};     // ranks
  std::size_t piece = 0;                // the collective's, once all have called it
};

struct Group {
  std::vector<int> gpus;
  std::vector<Call> calls;
  std::map<int, std::size_t> num_calls;  // by rank
};

// Sender, receiver, and whether it is an activation: messages of one way arrive in order.
using Way = std::tuple<int, int, bool>;

struct Message {
  Verb verb;
  std::size_t piece = 0;
};

struct GpuState {
  std::size_t next = 0;     // place in its program
  bool is_stopped = false;  // it has broken a rule
  std::vector<Holding> layers;
  // By layer and micro-batch: inputs of layers, and gradients of these.
  std::set<std::pair<int, int>> activations;
  std::set<std::pair<int, int>> gradients;
  std::vector<std::pair<Group*, std::size_t>> works;  // by number: group and place in its calls
};

class Referee {
 public:
  Referee(const PuzzleSizes& sizes, const Programs& programs)
      : sizes_(sizes),
        programs_(programs),
        prices_(sizes),
        gpus_(programs.size()),
        holders_(std::size_t(sizes.num_layers)),
        keeps_(holders_.size()) {}

  Played play() {
    Played played{.sizes = sizes_};
    try {
      load_all();
      while (play_round()) {
      }
      if (wrong_.empty()) require_end();
    } catch (const Foul& broken) {
      wrong_ = broken.what();
    }
    played.wrong = wrong_;
    played.holders = holders_;
    played.keeps = keeps_;
    record_.time(gpus_.size(), played);
    return played;
  }

 private:
  // A GPU's call: rank_ and verb_. Begins the sentence of a foul with them.
  template <typename Part>
  void in_turn(int rank, const Verb& verb, const Part& part) {
    rank_ = rank;
    verb_ = verb;
    try {
      if (verb_.op != Op::wait) require_numbers();
      part();
    } catch (const Foul& broken) {
      throw Foul(fmt::format("rank {}, {}: {}", rank_, to_string(verb_), broken.what()));
    }
  }

  GpuState& gpu() { return gpus_[std::size_t(rank_)]; }
  Holding& layer() { return gpu().layers[std::size_t(verb_.layer)]; }
  std::pair<int, int> key(int layer) const { return {layer, verb_.micro_batch}; }
  const std::vector<int>& holders() const { return holders_[std::size_t(verb_.layer)]; }
  std::ptrdiff_t activation_bytes() const { return std::ptrdiff_t(sizes_.activation_bytes()); }

  // A piece of the GPU's compute stream, and the change of its memory.
  std::size_t add(double seconds, std::ptrdiff_t num_bytes = 0,
                  std::vector<std::size_t> after = {}) {
    const std::size_t piece =
        record_.add(verb_, {{rank_}, Stream::compute, seconds, std::move(after)});
    record_.change(rank_, piece, num_bytes);
    return piece;
  }

  void require_numbers() const {
    const int last = sizes_.num_layers - 1;
    if (verb_.layer < 0 || verb_.layer > last) foul("layers are 0 to {}", last);
    const int last_batch = sizes_.num_micro_batches - 1;
    if (verb_.has_micro_batch() && (verb_.micro_batch < 0 || verb_.micro_batch > last_batch)) {
      foul("micro-batches are 0 to {}", last_batch);
    }
    const int num_gpus = int(gpus_.size());
    if (verb_.is_message() &&
        (verb_.other < 0 || verb_.other >= num_gpus || verb_.other == rank_)) {
      foul("there is no other rank {}", verb_.other);
    }
  }

  // --- loading: all GPUs' loads come before everything else ---

  void load_all() {
    for (int rank = 0; rank < int(gpus_.size()); ++rank) {
      for (const Verb& verb : programs_[std::size_t(rank)]) {
        if (verb.op != Op::load) continue;
        in_turn(rank, verb, [&] { load(keeps_[std::size_t(verb.layer)]); });
      }
    }
    for (int l = 0; l < sizes_.num_layers; ++l) {
      if (holders_[std::size_t(l)].empty()) foul("no GPU loads layer {}", l);
    }
    for (rank_ = 0; rank_ < int(gpus_.size()); ++rank_) {
      gpu().layers.resize(holders_.size());
      verb_ = {Op::load};
      std::ptrdiff_t num_bytes = 0;
      for (verb_.layer = 0; verb_.layer < sizes_.num_layers; ++verb_.layer) {
        if (std::ranges::count(holders(), rank_) == 0) continue;
        layer() = Holding(verb_.layer, keeps_[std::size_t(verb_.layer)], holders().size(),
                          sizes_.parameter_bytes());
        num_bytes += layer().loaded();
      }
      add(0, num_bytes);
    }
  }

  // keep: that of the GPUs before.
  void load(Keep& keep) {
    std::vector<int>& others = holders_[std::size_t(verb_.layer)];
    if (verb_.other < 0 || verb_.other > int(Keep::shard)) foul("there is no such Keep");
    if (std::ranges::count(others, rank_) > 0) foul("the GPU has loaded the layer before");
    if (sizes_.is_pipeline && !others.empty()) {
      foul("rank {} has loaded the layer; in this puzzle each is on one GPU", others.front());
    }
    if (others.empty()) keep = Keep(verb_.other);
    if (keep != Keep(verb_.other)) {
      foul("rank {} keeps more or less of the layer; all must keep equally much", others.front());
    }
    others.push_back(rank_);
  }

  // --- playing ---

  // Each GPU goes on until it waits for another one, or breaks a rule. Returns false when none went
  // on.
  bool play_round() {
    bool advanced = false;
    std::string waits;
    for (int rank = 0; rank < int(gpus_.size()); ++rank) {
      const std::vector<Verb>& program = programs_[std::size_t(rank)];
      GpuState& state = gpus_[std::size_t(rank)];
      std::string missing;
      while (state.next < program.size() && !state.is_stopped && missing.empty()) {
        missing = play_call(rank, program[state.next]);
        if (missing.empty()) ++state.next;
        advanced = advanced || missing.empty();
      }
      if (missing.empty()) continue;
      waits += fmt::format("{}rank {} in {} for {}", waits.empty() ? "" : ", ", rank,
                           to_string(verb_), missing);
    }
    if (!advanced && !waits.empty() && wrong_.empty()) {
      foul("GPUs wait for what never comes: {}", waits);
    }
    return advanced;
  }

  // Returns the call that this one waits for, in words; or nothing.
  std::string play_call(int rank, const Verb& verb) {
    std::string missing;
    try {
      in_turn(rank, verb, [&] {
        missing = missing_peer();
        if (missing.empty()) carry_out();
      });
    } catch (const Foul& broken) {
      if (wrong_.empty()) wrong_ = broken.what();
      gpu().is_stopped = true;
    }
    return missing;
  }

  // The call that this one waits for, in words; empty: it can be carried out. Gives a wait the
  // layer of its collective, for sentences.
  std::string missing_peer() {
    if (verb_.receives()) {
      return messages_[way(verb_.other, rank_)].empty() ? fmt::format("rank {}", verb_.other) : "";
    }
    if (verb_.op != Op::wait) return "";
    if (verb_.other < 0 || verb_.other >= int(gpu().works.size())) {
      foul("this Work is of no collective that the GPU has started");
    }
    const auto& [group, place] = gpu().works[std::size_t(verb_.other)];
    const Call& call = group->calls[place];
    verb_.layer = call.layer;
    for (const int peer : group->gpus) {
      if (std::ranges::count(call.has_called, peer) > 0) continue;
      return fmt::format("rank {}'s {}", peer, to_string(Verb{call.op, call.layer}));
    }
    return "";
  }

  void carry_out() {
    const Op op = verb_.op;
    if (op == Op::load) return;
    if (op == Op::wait) return wait();
    if (op == Op::free_activation) return free_activation();
    if (verb_.sends()) return send();
    if (verb_.receives()) return receive();
    if (!layer().is_loaded()) foul("the GPU does not load layer {}", verb_.layer);
    if (op == Op::forward) return forward();
    if (op == Op::backward) return backward();
    if (op == Op::update) {
      const double num_bytes = double(layer().updated_parameters());
      add(prices_.update(num_bytes), layer().update());
    } else if (op == Op::free_parameters) {
      add(0, layer().free_parameters());
    } else if (op == Op::free_gradient) {
      add(0, layer().free_gradient());
    } else {
      join(add(0, layer().start(op)));
    }
  }

  void forward() {
    layer().require_parameters();
    const int l = verb_.layer;
    std::set<std::pair<int, int>>& inputs = gpu().activations;
    if (l > 0 && !inputs.contains(key(l))) {
      foul("the output of layer {} for micro-batch {} is not there: compute or receive it first",
           l - 1, verb_.micro_batch);
    }
    const bool reads_batch = inputs.insert(key(l)).second;
    if (!inputs.insert(key(l + 1)).second) foul("its output is there already");
    add(prices_.forward(), (reads_batch ? 2 : 1) * activation_bytes());
  }

  void backward() {
    layer().require_parameters();
    const int l = verb_.layer;
    const bool is_last = l + 1 == sizes_.num_layers;
    if (!gpu().activations.contains(key(l))) {
      foul("the input that forward({}, {}) read is not there", l, verb_.micro_batch);
    }
    auto& upstream = is_last ? gpu().activations : gpu().gradients;
    if (!upstream.contains(key(l + 1))) {
      if (is_last) foul("there is no loss: the last layer's forward pass comes first");
      foul("layer {} has not passed a gradient back for micro-batch {}", l + 1, verb_.micro_batch);
    }
    if (const auto before = went_back_.find(key(l)); before != went_back_.end()) {
      foul("rank {} has done this already: a micro-batch goes back once, on one GPU",
           before->second);
    }
    const std::size_t piece = add(prices_.backward(l), layer().add_gradient());
    if (l > 0) {
      record_.change(rank_, piece, activation_bytes());
      gpu().gradients.insert(key(l));
    }
    record_.change(rank_, piece, -2 * activation_bytes());
    gpu().activations.erase(key(l));
    upstream.erase(key(l + 1));
    went_back_[key(l)] = rank_;
  }

  // A collective begins when all GPUs of the group have called it. piece: the GPU's call.
  void join(std::size_t piece) {
    Group& group = groups_[holders()];
    group.gpus = holders();
    const std::size_t place = group.num_calls[rank_]++;
    if (place == group.calls.size()) group.calls.push_back({verb_.op, verb_.layer, rank_});
    Call& call = group.calls[place];
    if (call.op != verb_.op || call.layer != verb_.layer) {
      foul("rank {} called {} instead; all must call their collectives in the same order",
           call.first, to_string(Verb{call.op, call.layer}));
    }
    call.has_called.push_back(rank_);
    call.calls.push_back(piece);
    gpu().works.emplace_back(&group, place);
    if (call.calls.size() < group.gpus.size()) return;
    const double seconds = prices_.collective(call.op, group.gpus.size());
    call.piece = record_.add(verb_, {group.gpus, Stream::comm, seconds, call.calls});
  }

  void wait() {
    const auto& [group, place] = gpu().works[std::size_t(verb_.other)];
    const Call& call = group->calls[place];
    add(0, 0, {call.piece});
    layer().finish(call.op);
  }

  void free_activation() {
    if (gpu().activations.erase(key(verb_.layer)) == 0) {
      foul("frees the input of layer {} for micro-batch {}, which is not there", verb_.layer,
           verb_.micro_batch);
    }
    add(0, -activation_bytes());
  }

  std::set<std::pair<int, int>>& moved() {
    return verb_.moves_activation() ? gpu().activations : gpu().gradients;
  }

  Way way(int from, int to) const { return {from, to, verb_.moves_activation()}; }

  // The memory is the sender's until the message has left, and the receiver's from its begin on.
  void send() {
    if (moved().erase(key(verb_.layer)) == 0) {
      foul("what it sends is not there for layer {} and micro-batch {}", verb_.layer,
           verb_.micro_batch);
    }
    const std::size_t call = add(0);
    const std::size_t piece =
        record_.add(verb_, {{rank_}, Stream::copy, prices_.message(), {call}});
    record_.change(rank_, piece, -activation_bytes());
    record_.change(verb_.other, piece, activation_bytes());
    messages_[way(rank_, verb_.other)].push_back({verb_, piece});
  }

  void receive() {
    std::deque<Message>& queue = messages_[way(verb_.other, rank_)];
    const Message message = queue.front();
    queue.pop_front();
    if (message.verb.layer != verb_.layer || message.verb.micro_batch != verb_.micro_batch) {
      foul("the next message of rank {} is that of its {}; both name the layer whose input travels",
           verb_.other, to_string(message.verb));
    }
    if (!moved().insert(key(verb_.layer)).second) foul("it is there already");
    add(0, 0, {message.piece});
  }

  // --- afterwards ---

  void require_end() const {
    for (int l = 0; l < sizes_.num_layers; ++l) {
      for (int m = 0; m < sizes_.num_micro_batches; ++m) {
        if (!went_back_.contains({l, m}))
          foul("micro-batch {} never goes back through layer {}", m, l);
      }
    }
    for (const auto& [way, queue] : messages_) {
      if (queue.empty()) continue;
      foul("rank {}, {}: rank {} never receives it", std::get<0>(way),
           to_string(queue.front().verb), std::get<1>(way));
    }
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) {
      try {
        for (const Holding& layer : gpus_[rank].layers) layer.require_end();
      } catch (const Foul& broken) {
        foul("rank {} {}", rank, broken.what());
      }
    }
  }

  const PuzzleSizes sizes_;
  const Programs& programs_;
  Prices prices_;
  int rank_ = 0;
  Verb verb_;
  std::string wrong_;  // the first broken rule
  std::vector<GpuState> gpus_;
  std::vector<std::vector<int>> holders_;  // by layer: ranks
  std::vector<Keep> keeps_;                // by layer
  std::map<std::vector<int>, Group> groups_;
  std::map<Way, std::deque<Message>> messages_;
  std::map<std::pair<int, int>, int> went_back_;  // layer, micro-batch -> rank
  Record record_;
};

}  // namespace

Played play(const PuzzleSizes& sizes, const Programs& programs) {
  return Referee(sizes, programs).play();
}

}  // namespace lab
