#include "engine/comm/mpi/mpi_data.h"

#include <algorithm>
#include <climits>

#include "engine/comm/mpi/mpi_session.h"
#include "engine/comm/reduce.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// MPI counts elements in int; larger buffers go in pieces.
constexpr std::size_t kPieceElements = std::size_t{1} << 30;

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    default:
      return MPI_SUM;  // average: the values were multiplied before
  }
}

// Calls move(address, count) for pieces that MPI can count.
template <typename Move>
void in_pieces(TensorView values, Move move) {
  for (std::size_t begin = 0; begin < values.num_elements; begin += kPieceElements) {
    const std::size_t count = std::min(kPieceElements, values.num_elements - begin);
    move(values.part(begin, count).data, static_cast<int>(count));
  }
}

void all_reduce(const CollectiveCall& call, MPI_Comm communicator, int world_size) {
  const TensorView buffer = call.input.view();
  const ReduceOp op = call.header.op;
  multiply(call.input.stream(), factor_of(op, world_size), buffer);
  in_pieces(buffer, [&](void* data, int count) {
    MPI_CHECK(
        MPI_Allreduce(MPI_IN_PLACE, data, count, mpi_type(buffer.dtype), mpi_op(op), communicator));
  });
}

void all_gather(const CollectiveCall& call, MPI_Comm communicator, int rank) {
  const auto count = static_cast<int>(call.input.num_elements());
  const MPI_Datatype type = mpi_type(call.header.dtype);
  const Tensor mine = call.output.slice(static_cast<std::size_t>(rank) * call.input.num_elements(),
                                        call.input.shape());
  const bool is_in_place = mine.raw() == call.input.raw();
  MPI_CHECK(MPI_Allgather(is_in_place ? MPI_IN_PLACE : call.input.raw(), count, type,
                          call.output.raw(), count, type, communicator));
}

void reduce_scatter(const CollectiveCall& call, MPI_Comm communicator, int world_size) {
  const ReduceOp op = call.header.op;
  const double factor = factor_of(op, world_size);
  const Tensor values = factor != 1 ? call.input.clone() : call.input;
  multiply(values.stream(), factor, values.view());
  MPI_CHECK(MPI_Reduce_scatter_block(values.raw(), call.output.raw(),
                                     static_cast<int>(call.output.num_elements()),
                                     mpi_type(call.header.dtype), mpi_op(op), communicator));
}

}  // namespace

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return MPI_DOUBLE;
    case DType::float32:
      return MPI_FLOAT;
    case DType::bfloat16:
    case DType::float16:
      return MPI_UINT16_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::uint8:
      return MPI_UINT8_T;
  }
  fail(ErrorCode::DType, "mpi", "unknown dtype");
}

void require_served(const CollectiveCall& call) {
  const Operation operation = call.header.operation;
  const DType dtype = call.header.dtype;
  const bool is_all_reduce = operation == Operation::all_reduce;
  const bool is_half = dtype == DType::bfloat16 || dtype == DType::float16;
  require(!is_half || !(is_all_reduce || operation == Operation::reduce_scatter), ErrorCode::DType,
          name_of(operation), "MPI does not reduce {}; convert to float32 first, or use --comm own",
          lockstep::to_string(dtype));
  if (!call.output.defined()) return;
  const std::size_t part = std::min(call.input.num_elements(), call.output.num_elements());
  require(part <= INT_MAX, ErrorCode::Shape, name_of(operation),
          "MPI counts to {} elements of each rank, found {}; cut the call, or use --comm own",
          INT_MAX, part);
}

void move_with_mpi(const CollectiveCall& call, MPI_Comm communicator, int rank, int world_size) {
  if (call.header.num_elements == 0) return;
  switch (call.header.operation) {
    case Operation::all_reduce:
      return all_reduce(call, communicator, world_size);
    case Operation::all_gather:
      return all_gather(call, communicator, rank);
    case Operation::reduce_scatter:
      return reduce_scatter(call, communicator, world_size);
    case Operation::broadcast:
      return in_pieces(call.input.view(), [&](void* data, int count) {
        MPI_CHECK(
            MPI_Bcast(data, count, mpi_type(call.header.dtype), call.header.root, communicator));
      });
    default:
      return;
  }
}

}  // namespace lockstep::comm
