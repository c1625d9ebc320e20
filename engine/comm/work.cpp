#include "engine/comm/work.h"

#include <algorithm>
#include <chrono>

#include "engine/runtime/wait.h"

namespace lockstep::comm {
namespace {

class WorksTogether final : public WorkState {
 public:
  explicit WorksTogether(std::vector<Work> works) : works_(std::move(works)) {}

  bool is_done() const override { return std::ranges::all_of(works_, &Work::is_done); }

  void wait(std::optional<double> timeout_seconds) const override {
    const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
    for (const Work& work : works_) {
      if (!deadline) {
        work.wait();
      } else {
        work.wait(std::chrono::duration<double>(runtime::time_until(deadline)).count());
      }
    }
  }

 private:
  std::vector<Work> works_;
};

}  // namespace

Work works_together(std::vector<Work> works) {
  return Work(std::make_shared<WorksTogether>(std::move(works)));
}

}  // namespace lockstep::comm
