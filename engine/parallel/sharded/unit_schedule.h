// When each unit's parameters are gathered and freed, and its gradients reduced:
//
//   forward of unit i    gather i, start to gather i + 1;  forward;  free i
//   backward of unit i   gather i, start to gather i - 1;  backward; reduce-scatter, free i
//
// Above depth three "free" does nothing, so that only the first gather after a step moves bytes. At
// most one reduce-scatter runs beside backward: the memory is that of two units' gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/parallel/sharded/unit.h"

namespace lockstep::parallel {

class UnitSchedule {
 public:
  // Stands around the forward passes of the units' modules while it lives.
  UnitSchedule(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
               ShardDepth depth);
  ~UnitSchedule();
  UnitSchedule(const UnitSchedule&) = delete;
  UnitSchedule& operator=(const UnitSchedule&) = delete;

  std::vector<Unit>& units() { return units_; }

  // False: another backward pass follows before the optimizer's step. Depth one then only
  // accumulates; depths two and three still reduce-scatter, and keep the gathered parameters.
  void set_stepping(bool is_stepping) { is_stepping_ = is_stepping; }

  // Ends what a pass that failed has left behind.
  void begin_forward();

 private:
  struct Hook {
    Variable parameter;
    std::uint64_t id;
  };

  Variable run_forward(std::size_t unit, const std::function<Variable()>& forward);
  void before_backward(std::size_t unit);
  void begin_backward();
  void on_ready(std::size_t unit, std::size_t parameter);
  void finish_backward();
  std::size_t unit_before(std::size_t unit) const;  // the one before it in forward

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::shared_ptr<nn::Module> module_;
  comm::Communicator& communicator_;
  ShardDepth depth_;
  std::vector<Unit> units_;
  std::vector<Hook> hooks_;
  bool has_root_ = false;
  bool is_stepping_ = true;
  bool in_backward_ = false;
  std::size_t reducing_ = kNone;  // the unit whose reduce-scatter runs
};

}  // namespace lockstep::parallel
