// Copies, transpositions, fills and gathers.
#include <cstring>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/core/half.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels {
namespace {

// So many bytes are worth a hand-over to another thread.
constexpr std::size_t kCopyGrain = 256 * 1024;

template <typename From>
void gather(Stream& stream, const ConstMatrixView& source, const std::int64_t* indices,
            const MatrixView& to, double scale) {
  for_floating(to.dtype, "gather_rows", [&]<typename T>() {
    parallel_rows(stream, to.rows, to.cols, [&](std::size_t begin, std::size_t end) {
      // Bytes in float64, so that a pixel / 255 is the nearest float32, as a division gives it.
      using Factor = std::conditional_t<std::is_same_v<From, std::uint8_t>, double, T>;
      const auto factor = static_cast<Factor>(scale);
      for (std::size_t i = begin; i < end; ++i) {
        const From* in = row_of<From>(source, static_cast<std::size_t>(indices[i]));
        T* out = row_of<T>(to, i);
        for (std::size_t j = 0; j < to.cols; ++j)
          out[j] = static_cast<T>(factor * static_cast<Factor>(in[j]));
      }
    });
  });
}

void convert(Stream& stream, const ConstTensorView& from, const TensorView& to) {
  for_any_of<Bfloat16, Float16>(from.dtype, [&]<typename From>() {
    for_any_of<Bfloat16, Float16>(to.dtype, [&]<typename To>() {
      parallel_elements(stream, from.num_elements, [&](std::size_t begin, std::size_t end) {
        const From* in = data_of<From>(from);
        To* out = data_of<To>(to);
        for (std::size_t i = begin; i < end; ++i) {
          out[i] = static_cast<To>(static_cast<ArithmeticOf<From>>(in[i]));
        }
      });
    });
  });
}

}  // namespace

void EigenBackend::copy(Stream& stream, const Copy& call) {
  require_as_large("copy", call.from, {"to", call.to});
  if (call.from.dtype != call.to.dtype) return convert(stream, call.from, call.to);
  parallel_ranges(stream, call.from.num_bytes(), kCopyGrain,
                  [&](std::size_t begin, std::size_t end) {
                    std::memcpy(static_cast<std::byte*>(call.to.data) + begin,
                                static_cast<const std::byte*>(call.from.data) + begin, end - begin);
                  });
}

void EigenBackend::copy_matrix(Stream& stream, const CopyMatrix& call) {
  if (call.from.num_elements() == 0) return;
  const std::size_t size = size_of(call.from.dtype);
  parallel_rows(
      stream, call.from.batch * call.from.rows, call.from.cols * size / sizeof(float),
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
          const std::size_t batch = i / call.from.rows;
          const std::size_t row = i % call.from.rows;
          const std::size_t at = batch * call.from.batch_stride + row * call.from.leading_dimension;
          const std::size_t put = batch * call.to.batch_stride + row * call.to.leading_dimension;
          std::memcpy(static_cast<std::byte*>(call.to.data) + put * size,
                      static_cast<const std::byte*>(call.from.data) + at * size,
                      call.from.cols * size);
        }
      });
}

void EigenBackend::transpose(Stream& stream, const TransposeMatrices& call) {
  for_floating(call.x.dtype, "transpose", [&]<typename T>() {
    parallel_rows(
        stream, call.x.batch * call.x.cols, call.x.rows, [&](std::size_t begin, std::size_t end) {
          for (std::size_t b = begin / call.x.cols; b * call.x.cols < end; ++b) {
            const std::size_t first = std::max(begin, b * call.x.cols) - b * call.x.cols;
            const std::size_t last = std::min(end - b * call.x.cols, call.x.cols);
            const T* from = data_of<T>(call.x) + b * call.x.batch_stride;
            T* to = data_of<T>(call.y) + b * call.x.rows * call.x.cols;
            for (std::size_t i = 0; i < call.x.rows; ++i, from += call.x.leading_dimension) {
              for (std::size_t j = first; j < last; ++j) to[j * call.x.rows + i] = from[j];
            }
          }
        });
  });
}

void EigenBackend::fill(Stream& stream, const Fill& call) {
  for_any_of<Bfloat16, Float16>(call.to.dtype, [&]<typename T>() {
    parallel_elements(stream, call.to.num_elements, [&](std::size_t begin, std::size_t end) {
      std::fill(data_of<T>(call.to) + begin, data_of<T>(call.to) + end, static_cast<T>(call.value));
    });
  });
}

void EigenBackend::gather_rows(Stream& stream, const GatherRows& call) {
  const auto* index = data_of<std::int64_t>(call.indices);
  for (std::size_t i = 0; i < call.to.rows; ++i) {
    require(index[i] >= 0 && static_cast<std::size_t>(index[i]) < call.source.rows,
            ErrorCode::Shape, "gather_rows", "index {} (at {}) is outside the source's {} rows",
            index[i], i, call.source.rows);
  }
  if (call.source.dtype == DType::uint8)
    return gather<std::uint8_t>(stream, call.source, index, call.to, call.scale);
  for_floating(call.source.dtype, "gather_rows", [&]<typename From>() {
    gather<From>(stream, call.source, index, call.to, call.scale);
  });
}

}  // namespace lockstep::kernels
