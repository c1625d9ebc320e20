#include "tutorials/labs/puzzles/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace lab {
namespace {

// A rule that is broken; what() is the sentence.
class Foul : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a GPU holds of a layer.
struct LayerState {
  enum class Parameters { none, shard, arriving, whole, stale };  // stale: but for its shard
  enum class Gradient { none, own, summing, sum, scattering, scattered };
  enum class Shard { none, arriving, ready };  // of the gradient

  bool is_loaded = false;
  Keep keep = Keep::whole;
  Parameters parameters = Parameters::none;
  Gradient gradient = Gradient::none;
  Shard shard = Shard::none;
  bool is_updated = false;
};
using Parameters = LayerState::Parameters;
using Gradient = LayerState::Gradient;
using Shard = LayerState::Shard;

// A collective of a group, from its first call on.
struct Call {
  Op op = Op::all_reduce;
  int layer = 0;
  int first = 0;                   // the rank that called it first
  std::vector<std::size_t> calls;  // their pieces
  std::vector<int> has_called;     // ranks
  std::size_t piece = 0;           // the collective's, once all have called it
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
  std::size_t next = 0;  // place in its program
  std::vector<LayerState> layers;
  // By layer and micro-batch: inputs of layers, and gradients of these.
  std::set<std::pair<int, int>> activations;
  std::set<std::pair<int, int>> gradients;
  std::vector<std::pair<Group*, std::size_t>> works;  // by number: group and place in its calls
};

// A change of what a GPU holds, when a piece begins or ends.
struct Change {
  int gpu = 0;
  std::size_t piece = 0;
  enum class At { begin, end } at = At::begin;
  std::ptrdiff_t num_bytes = 0;
};

class Referee {
 public:
  Referee(const PuzzleSizes& sizes, const Programs& programs)
      : sizes_(sizes), programs_(programs), prices_(sizes), gpus_(programs.size()) {
    for (GpuState& gpu : gpus_) gpu.layers.resize(std::size_t(sizes.num_layers));
  }

  Played play() {
    Played played;
    try {
      load_all();
      while (!is_finished()) play_round();
      require_end();
    } catch (const Foul& foul) {
      played.wrong = foul.what();
    }
    time(played);
    return played;
  }

 private:
  // --- the turn of a GPU: rank_ and verb_ are its own ---

  template <typename... Values>
  [[noreturn]] void foul(fmt::format_string<Values...> text, Values&&... values) const {
    throw Foul(fmt::format("rank {}, {}: {}", rank_, to_string(verb_),
                           fmt::format(text, std::forward<Values>(values)...)));
  }

  GpuState& gpu() { return gpus_[std::size_t(rank_)]; }
  LayerState& layer() { return gpu().layers[std::size_t(verb_.layer)]; }
  std::pair<int, int> key(int layer) const { return {layer, verb_.micro_batch}; }
  const std::vector<int>& holders() const { return holders_[std::size_t(verb_.layer)]; }
  bool is_alone() const { return holders().size() == 1; }
  std::ptrdiff_t whole_bytes() const { return std::ptrdiff_t(sizes_.parameter_bytes()); }
  std::ptrdiff_t shard_bytes() const { return whole_bytes() / std::ptrdiff_t(holders().size()); }
  std::ptrdiff_t activation_bytes() const { return std::ptrdiff_t(sizes_.activation_bytes()); }

  // A piece of the GPU's compute stream.
  std::size_t add(double seconds, std::vector<std::size_t> after = {}) {
    pieces_.push_back({{rank_}, Stream::compute, seconds, std::move(after)});
    verbs_.push_back(verb_);
    return pieces_.size() - 1;
  }
  void hold(std::size_t piece, std::ptrdiff_t num_bytes) {
    changes_.push_back({rank_, piece, Change::At::begin, num_bytes});
  }
  void release(std::size_t piece, std::ptrdiff_t num_bytes) {
    changes_.push_back({rank_, piece, Change::At::end, -num_bytes});
  }

  void require_numbers() const {
    if (verb_.op == Op::wait) return;
    if (verb_.layer < 0 || verb_.layer >= sizes_.num_layers) {
      foul("there is no layer {}, only 0 to {}", verb_.layer, sizes_.num_layers - 1);
    }
    if (!verb_.has_micro_batch()) return;
    if (verb_.micro_batch < 0 || verb_.micro_batch >= sizes_.num_micro_batches) {
      foul("there is no micro-batch {}, only 0 to {}", verb_.micro_batch,
           sizes_.num_micro_batches - 1);
    }
  }

  void load_all() {
    holders_.resize(std::size_t(sizes_.num_layers));
    for (rank_ = 0; rank_ < int(gpus_.size()); ++rank_) {
      for (const Verb& verb : programs_[std::size_t(rank_)]) {
        verb_ = verb;
        if (verb.op == Op::load) load();
      }
    }
    for (int l = 0; l < sizes_.num_layers; ++l) {
      if (holders_[std::size_t(l)].empty()) throw Foul(fmt::format("no GPU loads layer {}", l));
    }
    for (rank_ = 0; rank_ < int(gpus_.size()); ++rank_) hold_loaded();
  }

  void load() {
    require_numbers();
    LayerState& mine = layer();
    if (mine.is_loaded) foul("the GPU has loaded the layer before");
    if (verb_.other < 0 || verb_.other > int(Keep::shard)) foul("there is no such Keep");
    mine.is_loaded = true;
    mine.keep = Keep(verb_.other);
    mine.parameters = mine.keep == Keep::shard ? Parameters::shard : Parameters::whole;
    std::vector<int>& others = holders_[std::size_t(verb_.layer)];
    if (!others.empty()) {
      if (sizes_.is_pipeline) {
        foul("rank {} has loaded the layer; in this puzzle each is on one GPU", others.front());
      }
      const GpuState& first = gpus_[std::size_t(others.front())];
      if (first.layers[std::size_t(verb_.layer)].keep != mine.keep) {
        foul("rank {} keeps more or less of the layer; all must keep equally much", others.front());
      }
    }
    others.push_back(rank_);
  }

  void hold_loaded() {
    verb_ = {Op::load};
    const std::size_t piece = add(0);
    for (verb_.layer = 0; verb_.layer < sizes_.num_layers; ++verb_.layer) {
      if (!layer().is_loaded) continue;
      hold(piece, layer().keep == Keep::shard ? shard_bytes() : whole_bytes());
      hold(piece, layer().keep == Keep::whole ? whole_bytes() : shard_bytes());
      if (is_alone() && layer().keep == Keep::shard) layer().parameters = Parameters::whole;
    }
  }

  bool is_finished() const {
    for (std::size_t r = 0; r < gpus_.size(); ++r) {
      if (gpus_[r].next < programs_[r].size()) return false;
    }
    return true;
  }

  // Each GPU goes on until it waits for another one.
  void play_round() {
    bool advanced = false;
    std::string waits;
    for (rank_ = 0; rank_ < int(gpus_.size()); ++rank_) {
      const std::vector<Verb>& program = programs_[std::size_t(rank_)];
      while (gpu().next < program.size()) {
        verb_ = program[gpu().next];
        require_numbers();
        const std::string missing = missing_peer();
        if (!missing.empty()) {
          waits += fmt::format("{}rank {} in {} for {}", waits.empty() ? "" : ", ", rank_,
                               to_string(verb_), missing);
          break;
        }
        carry_out();
        ++gpu().next;
        advanced = true;
      }
    }
    if (!advanced) throw Foul("GPUs wait for what never comes: " + waits);
  }

  // The ranks that the verb waits for, in words; empty: it can be carried out. Gives a wait its
  // collective's layer, for sentences.
  std::string missing_peer() {
    if (verb_.receives()) {
      if (verb_.other < 0 || verb_.other >= int(gpus_.size()) || verb_.other == rank_) {
        foul("there is no other rank {}", verb_.other);
      }
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
      if (std::ranges::count(call.has_called, peer) == 0) {
        return fmt::format("rank {}'s {}", peer, to_string(Verb{call.op, call.layer}));
      }
    }
    return "";
  }

  void carry_out() {
    if (verb_.op == Op::load) return;
    if (!verb_.is_message() && verb_.op != Op::free_activation && verb_.op != Op::wait &&
        !layer().is_loaded) {
      foul("the GPU does not load layer {}", verb_.layer);
    }
    switch (verb_.op) {
      case Op::load:
        return;
      case Op::forward:
        return forward();
      case Op::backward:
        return backward();
      case Op::all_reduce:
      case Op::reduce_scatter:
      case Op::all_gather:
        return start();
      case Op::wait:
        return wait();
      case Op::update:
        return update();
      case Op::free_parameters:
        return free_parameters();
      case Op::free_gradient:
        return free_gradient();
      case Op::free_activation:
        return free_activation();
      case Op::send_activation:
      case Op::send_gradient:
        return send();
      case Op::receive_activation:
      case Op::receive_gradient:
        return receive();
    }
  }

  void require_parameters() {
    const LayerState& mine = layer();
    if (mine.is_updated) foul("the GPU has updated layer {} already", verb_.layer);
    if (mine.parameters == Parameters::arriving) {
      foul("uses the parameters of layer {} before it waited for their all_gather", verb_.layer);
    }
    if (mine.parameters != Parameters::whole) {
      foul("uses the parameters of layer {} before they were gathered: it holds only its shard",
           verb_.layer);
    }
  }

  void forward() {
    require_parameters();
    const int l = verb_.layer;
    const bool reads_batch = l == 0 && !gpu().activations.contains(key(0));
    if (l > 0 && !gpu().activations.contains(key(l))) {
      foul("the output of layer {} for micro-batch {} is not there", l - 1, verb_.micro_batch);
    }
    if (gpu().activations.contains(key(l + 1))) foul("its output is there already");
    const std::size_t piece = add(prices_.forward());
    if (reads_batch) hold(piece, activation_bytes());
    if (reads_batch) gpu().activations.insert(key(0));
    hold(piece, activation_bytes());
    gpu().activations.insert(key(l + 1));
  }

  void backward() {
    require_parameters();
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
      foul("rank {} has done this already", before->second);
    }
    const std::size_t piece = add(prices_.backward(l));
    add_gradient(piece);
    if (l > 0) {
      hold(piece, activation_bytes());
      gpu().gradients.insert(key(l));
    }
    release(piece, 2 * activation_bytes());
    gpu().activations.erase(key(l));
    upstream.erase(key(l + 1));
    went_back_[key(l)] = rank_;
  }

  void add_gradient(std::size_t piece) {
    switch (layer().gradient) {
      case Gradient::none:
        layer().gradient = Gradient::own;
        return hold(piece, whole_bytes());
      case Gradient::own:
        return;
      case Gradient::summing:
      case Gradient::scattering:
        foul("adds to the gradient of layer {} while it is being reduced", verb_.layer);
      case Gradient::sum:
        foul("adds to the gradient of layer {} after its all_reduce", verb_.layer);
      case Gradient::scattered:
        foul("adds to the gradient of layer {} after its reduce_scatter: free it first",
             verb_.layer);
    }
  }

  // A collective: all GPUs of the group start it before it begins.
  void start() {
    LayerState& mine = layer();
    const std::size_t piece = add(0);
    if (verb_.op == Op::all_gather) {
      if (mine.parameters == Parameters::whole || mine.parameters == Parameters::arriving) {
        foul("the parameters of layer {} are whole already, or being gathered", verb_.layer);
      }
      if (mine.keep == Keep::shard && mine.parameters == Parameters::shard) {
        hold(piece, whole_bytes());
      }
      mine.parameters = Parameters::arriving;
    } else {
      if (mine.gradient != Gradient::own) {
        foul("there is no gradient of layer {} that backward added to and that was not reduced yet",
             verb_.layer);
      }
      const bool scatters = verb_.op == Op::reduce_scatter;
      mine.gradient = scatters ? Gradient::scattering : Gradient::summing;
      if (scatters && mine.shard == Shard::none) hold(piece, shard_bytes());
      if (scatters) mine.shard = Shard::arriving;
    }
    join(piece);
  }

  void join(std::size_t piece) {
    Group& group = groups_[holders()];
    group.gpus = holders();
    const std::size_t place = group.num_calls[rank_]++;
    if (place == group.calls.size()) {
      group.calls.push_back({verb_.op, verb_.layer, rank_, {}, {}, 0});
    }
    Call& call = group.calls[place];
    if (call.op != verb_.op || call.layer != verb_.layer) {
      foul("rank {} called {} instead; all must call their collectives in the same order",
           call.first, to_string(Verb{call.op, call.layer}));
    }
    call.has_called.push_back(rank_);
    call.calls.push_back(piece);
    gpu().works.emplace_back(&group, place);
    if (call.calls.size() < group.gpus.size()) return;
    call.piece = pieces_.size();
    pieces_.push_back(
        {group.gpus, Stream::comm, prices_.collective(call.op, group.gpus.size()), call.calls});
    verbs_.push_back(verb_);
  }

  void wait() {
    const auto& [group, place] = gpu().works[std::size_t(verb_.other)];
    const Call& call = group->calls[place];
    add(0, {call.piece});
    LayerState& mine = layer();
    if (call.op == Op::all_gather && mine.parameters == Parameters::arriving) {
      mine.parameters = Parameters::whole;
    } else if (call.op == Op::all_reduce && mine.gradient == Gradient::summing) {
      mine.gradient = Gradient::sum;
    } else if (call.op == Op::reduce_scatter && mine.gradient == Gradient::scattering) {
      mine.gradient = Gradient::scattered;
      mine.shard = Shard::ready;
    }
  }

  void update() {
    LayerState& mine = layer();
    const int l = verb_.layer;
    if (mine.is_updated) foul("updates layer {} twice", l);
    if (mine.parameters == Parameters::arriving) foul("layer {} is being gathered", l);
    if (mine.gradient == Gradient::summing || mine.shard == Shard::arriving) {
      foul("updates layer {} before it waited for the sum of its gradient", l);
    }
    if (mine.gradient == Gradient::own && !is_alone()) {
      foul("updates layer {} with the GPU's own gradient, before it was reduced", l);
    }
    const bool has_shard = mine.shard == Shard::ready;
    const bool has_sum = mine.gradient == Gradient::sum || mine.gradient == Gradient::own;
    if (!has_sum && !has_shard) foul("there is no gradient of layer {}", l);
    if (!has_sum && mine.keep == Keep::whole && !is_alone()) {
      foul("has a shard of the gradient of layer {}, and loaded the whole state", l);
    }
    const std::ptrdiff_t num_bytes = mine.keep == Keep::whole ? whole_bytes() : shard_bytes();
    const std::size_t piece = add(prices_.update(double(num_bytes)));
    if (has_shard) release(piece, shard_bytes());
    if (has_sum) release(piece, whole_bytes());
    if (has_sum) mine.gradient = Gradient::none;
    mine.shard = Shard::none;
    mine.is_updated = true;
    const bool is_sharded = mine.keep != Keep::whole && !is_alone();
    if (is_sharded && mine.parameters == Parameters::whole) mine.parameters = Parameters::stale;
  }

  void free_parameters() {
    LayerState& mine = layer();
    if (mine.keep != Keep::shard) foul("only gathered parameters can be freed");
    if (mine.parameters == Parameters::arriving) {
      foul("frees the parameters of layer {} while they are being gathered", verb_.layer);
    }
    if (mine.parameters == Parameters::shard || is_alone()) {
      foul("frees the parameters of layer {}, which are not gathered", verb_.layer);
    }
    mine.parameters = Parameters::shard;
    release(add(0), whole_bytes());
  }

  void free_gradient() {
    LayerState& mine = layer();
    switch (mine.gradient) {
      case Gradient::none:
        foul("frees the gradient of layer {}, which is not there", verb_.layer);
      case Gradient::own:
        foul("frees the gradient of layer {} before it was reduced", verb_.layer);
      case Gradient::summing:
      case Gradient::scattering:
        foul("frees the gradient of layer {} while it is being reduced", verb_.layer);
      case Gradient::sum:
        foul("frees the gradient of layer {} before the update", verb_.layer);
      case Gradient::scattered:
        mine.gradient = Gradient::none;
        release(add(0), whole_bytes());
    }
  }

  void free_activation() {
    if (gpu().activations.erase(key(verb_.layer)) == 0) {
      foul("frees the input of layer {} for micro-batch {}, which is not there", verb_.layer,
           verb_.micro_batch);
    }
    release(add(0), activation_bytes());
  }

  std::set<std::pair<int, int>>& moved() {
    return verb_.moves_activation() ? gpu().activations : gpu().gradients;
  }

  Way way(int from, int to) const { return {from, to, verb_.moves_activation()}; }

  // The memory is the sender's until the message has left, and the receiver's from its begin on.
  void send() {
    if (verb_.other < 0 || verb_.other >= int(gpus_.size()) || verb_.other == rank_) {
      foul("there is no other rank {}", verb_.other);
    }
    if (moved().erase(key(verb_.layer)) == 0) {
      foul("what it sends is not there for layer {} and micro-batch {}", verb_.layer,
           verb_.micro_batch);
    }
    const std::size_t call = add(0);
    const std::size_t piece = pieces_.size();
    pieces_.push_back({{rank_}, Stream::copy, prices_.message(), {call}});
    verbs_.push_back(verb_);
    release(piece, activation_bytes());
    changes_.push_back({verb_.other, piece, Change::At::begin, activation_bytes()});
    messages_[way(rank_, verb_.other)].push_back({verb_, piece});
  }

  void receive() {
    std::deque<Message>& queue = messages_[way(verb_.other, rank_)];
    const Message message = queue.front();
    queue.pop_front();
    const Op expected =
        verb_.op == Op::receive_activation ? Op::send_activation : Op::send_gradient;
    if (message.verb.op != expected || message.verb.layer != verb_.layer ||
        message.verb.micro_batch != verb_.micro_batch) {
      foul("the next message of rank {} is that of its {}", verb_.other, to_string(message.verb));
    }
    if (!moved().insert(key(verb_.layer)).second) foul("it is there already");
    add(0, {message.piece});
  }

  void require_end() {
    for (int l = 0; l < sizes_.num_layers; ++l) {
      for (int m = 0; m < sizes_.num_micro_batches; ++m) {
        if (!went_back_.contains({l, m})) {
          throw Foul(fmt::format("micro-batch {} never goes back through layer {}", m, l));
        }
      }
    }
    for (const auto& [way, queue] : messages_) {
      if (queue.empty()) continue;
      throw Foul(fmt::format("rank {}, {}: rank {} never receives it", std::get<0>(way),
                             to_string(queue.front().verb), std::get<1>(way)));
    }
    for (std::size_t r = 0; r < gpus_.size(); ++r) {
      for (int l = 0; l < sizes_.num_layers; ++l) {
        const LayerState& its = gpus_[r].layers[std::size_t(l)];
        if (!its.is_loaded) continue;
        if (!its.is_updated) throw Foul(fmt::format("rank {} never updates layer {}", r, l));
        if (its.keep != Keep::shard && its.parameters != Parameters::whole) {
          throw Foul(fmt::format(
              "rank {} ends with old parameters of layer {}, but for its shard: after update "
              "comes all_gather({}), and a wait for it",
              r, l, l));
        }
      }
    }
  }

  // --- afterwards ---

  void time(Played& played) const {
    const std::vector<Interval> times = run_pieces(pieces_, int(gpus_.size()));
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      played.seconds = std::max(played.seconds, times[i].end);
      if (pieces_[i].seconds == 0) continue;
      played.events.push_back({verbs_[i], pieces_[i].gpus, pieces_[i].stream, times[i]});
    }
    played.memory.resize(gpus_.size());
    std::vector<std::vector<std::pair<double, std::ptrdiff_t>>> changes(gpus_.size());
    for (const Change& change : changes_) {
      const Interval& time = times[change.piece];
      changes[std::size_t(change.gpu)].emplace_back(
          change.at == Change::At::begin ? time.begin : time.end, change.num_bytes);
    }
    for (std::size_t r = 0; r < gpus_.size(); ++r) {
      std::ranges::sort(changes[r]);  // what is given back at an instant comes first
      std::ptrdiff_t held = 0;
      for (const auto& [seconds, num_bytes] : changes[r]) {
        held += num_bytes;
        played.memory[r].push_back({seconds, std::size_t(held)});
        played.most_bytes = std::max(played.most_bytes, std::size_t(held));
      }
    }
  }

  const PuzzleSizes sizes_;
  const Programs& programs_;
  Prices prices_;
  int rank_ = 0;
  Verb verb_;
  std::vector<GpuState> gpus_;
  std::vector<std::vector<int>> holders_;  // by layer: ranks
  std::map<std::vector<int>, Group> groups_;
  std::map<Way, std::deque<Message>> messages_;
  std::map<std::pair<int, int>, int> went_back_;  // layer, micro-batch -> rank
  std::vector<Piece> pieces_;
  std::vector<Verb> verbs_;  // by piece
  std::vector<Change> changes_;
};

}  // namespace

Played play(const PuzzleSizes& sizes, const Programs& programs) {
  return Referee(sizes, programs).play();
}

}  // namespace lab
