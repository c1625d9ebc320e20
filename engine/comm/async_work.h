// The state behind the Work of an asynchronous collective on the CPU.
#pragma once

#include <exception>
#include <memory>

#include "engine/comm/transport/transport.h"
#include "engine/comm/work.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class AsyncWork final : public WorkState {
 public:
  AsyncWork(const CallHeader& call, std::weak_ptr<const Transport> transport)
      : call_(call), transport_(std::move(transport)) {}

  // Says that the operation is done, with its error or with nullptr.
  void finish(std::exception_ptr error);

  bool is_done() const override { return is_done_.load() != 0; }
  void wait(std::optional<double> timeout_seconds) const override;
  // Without the error: for the next operation in line.
  void wait_until_done() const { is_done_.wait_while_equal(0); }

 private:
  CallHeader call_;
  std::weak_ptr<const Transport> transport_;  // for error messages
  runtime::WaitWord is_done_{0};
  std::exception_ptr error_;
};

}  // namespace lockstep::comm
