#include "engine/comm/communicator.h"

#include <cmath>

#include "engine/comm/collective_call.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

void require_defined(Operation operation, const Tensor& tensor) {
  if (tensor.defined()) return;
  fail(ErrorCode::Usage, name_of(operation), "needs a tensor, found one that is undefined");
}

void require_rank(Operation operation, std::string_view role, int rank, int world_size) {
  require(rank >= 0 && rank < world_size, ErrorCode::Usage, name_of(operation),
          "the {} must be a rank in 0 ... {}, found {}", role, world_size - 1, rank);
}

// `whole` has n times the elements of `part`, and they share dtype and device.
void require_parts(Operation operation, const Tensor& part, const Tensor& whole, int world_size) {
  require_defined(operation, part);
  require_defined(operation, whole);
  require_same_dtype(name_of(operation), {&part, &whole});
  require_same_device(name_of(operation), {&part, &whole});
  require(whole.num_elements() == part.num_elements() * static_cast<std::size_t>(world_size),
          ErrorCode::Shape, name_of(operation),
          "the larger tensor must hold {} times the elements of the smaller one, found {} and {}",
          world_size, lockstep::to_string(whole.shape()), lockstep::to_string(part.shape()));
}

CollectiveCall make_call(Operation operation, const Tensor& input, double timeout_seconds) {
  CollectiveCall call;
  call.header.operation = operation;
  if (input.defined()) {
    call.header.num_elements = input.num_elements();
    call.header.dtype = input.dtype();
    call.header.device = input.device().type;
  }
  call.input = input;
  call.timeout_seconds = timeout_seconds;
  return call;
}

}  // namespace

void require_reducible(Operation operation, DType dtype, ReduceOp op) {
  if (is_floating_point(dtype)) return;
  require(dtype == DType::int32 || dtype == DType::int64, ErrorCode::DType, name_of(operation),
          "takes floating-point numbers, int32 and int64, found {}; convert it first",
          lockstep::to_string(dtype));
  require(op != ReduceOp::average, ErrorCode::DType, name_of(operation),
          "cannot average {}; use sum, or convert to a floating type", lockstep::to_string(dtype));
}

void Communicator::set_timeout_seconds(double seconds) {
  require(seconds > 0 && !std::isnan(seconds), ErrorCode::Usage, "set_timeout_seconds",
          "needs a time above 0, found {}", seconds);
  timeout_seconds_ = seconds;
}

Work Communicator::all_reduce(const Tensor& buffer, const CollectiveOptions& options) {
  require_defined(Operation::all_reduce, buffer);
  require_reducible(Operation::all_reduce, buffer.dtype(), options.op);
  CollectiveCall call = make_call(Operation::all_reduce, buffer, timeout_seconds_);
  call.header.op = options.op;
  const bool is_named = options.plan != plan::AllReducePlan::automatic;
  call.header.plan = is_named ? options.plan : default_plan_;
  buffer.bump_version();
  return submit(std::move(call), options.launch);
}

Work Communicator::broadcast(const Tensor& buffer, int root, Launch launch) {
  require_defined(Operation::broadcast, buffer);
  require_rank(Operation::broadcast, "root", root, world_size());
  CollectiveCall call = make_call(Operation::broadcast, buffer, timeout_seconds_);
  call.header.root = root;
  if (rank() != root) buffer.bump_version();
  return submit(std::move(call), launch);
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output, Launch launch) {
  require_parts(Operation::all_gather, input, output, world_size());
  CollectiveCall call = make_call(Operation::all_gather, input, timeout_seconds_);
  call.output = output;
  output.bump_version();
  return submit(std::move(call), launch);
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output,
                                  const CollectiveOptions& options) {
  require_parts(Operation::reduce_scatter, output, input, world_size());
  require_reducible(Operation::reduce_scatter, input.dtype(), options.op);
  CollectiveCall call = make_call(Operation::reduce_scatter, input, timeout_seconds_);
  call.header.op = options.op;
  call.output = output;
  output.bump_version();
  return submit(std::move(call), options.launch);
}

Work Communicator::barrier(Launch launch) {
  return submit(make_call(Operation::barrier, {}, timeout_seconds_), launch);
}

Work Communicator::send(const Tensor& tensor, int to, Launch launch) {
  require_defined(Operation::send, tensor);
  require_rank(Operation::send, "receiver", to, world_size());
  CollectiveCall call = make_call(Operation::send, tensor, timeout_seconds_);
  call.peer = to;
  return submit(std::move(call), launch);
}

Work Communicator::recv(const Tensor& tensor, int from, Launch launch) {
  require_defined(Operation::recv, tensor);
  require_rank(Operation::recv, "sender", from, world_size());
  CollectiveCall call = make_call(Operation::recv, tensor, timeout_seconds_);
  call.peer = from;
  tensor.bump_version();
  return submit(std::move(call), launch);
}

std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine,
                                         Communicator& communicator) {
  const auto world_size = static_cast<std::size_t>(communicator.world_size());
  const Tensor input = Tensor::from(mine, {mine.size()}, Device{});
  const Tensor output = Tensor::empty({mine.size() * world_size}, DType::int64, Device{});
  communicator.all_gather(input, output).wait();
  return output.to_vector<std::int64_t>();
}

double reduce_number(double mine, ReduceOp op, Communicator& communicator, Device device) {
  const Tensor number = Tensor::from(std::vector<double>{mine}, {1}, device);
  CollectiveOptions options;
  options.op = op;
  communicator.all_reduce(number, options).wait();
  return number.item();
}

}  // namespace lockstep::comm
