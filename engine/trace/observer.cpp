#include "engine/trace/observer.h"

namespace lockstep::trace {

std::atomic<Observer*> detail::installed{nullptr};

void set_observer(Observer* observer) {
  detail::installed.store(observer, std::memory_order_relaxed);
}

}  // namespace lockstep::trace
