// Copies, transpositions, fills and gathers.
#include <cstring>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/core/half.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

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

void EigenBackend::copy(Stream& stream, ConstTensorView from, TensorView to) {
  require_as_large("copy", from, {"to", to});
  if (from.dtype != to.dtype) return convert(stream, from, to);
  parallel_ranges(stream, from.num_bytes(), kCopyGrain, [&](std::size_t begin, std::size_t end) {
    std::memcpy(static_cast<std::byte*>(to.data) + begin,
                static_cast<const std::byte*>(from.data) + begin, end - begin);
  });
}

void EigenBackend::copy_matrix(Stream& stream, ConstMatrixView from, MatrixView to) {
  if (from.num_elements() == 0) return;
  const std::size_t size = size_of(from.dtype);
  parallel_rows(stream, from.batch * from.rows, from.cols * size / sizeof(float),
                [&](std::size_t begin, std::size_t end) {
                  for (std::size_t i = begin; i < end; ++i) {
                    const std::size_t batch = i / from.rows;
                    const std::size_t row = i % from.rows;
                    const std::size_t at = batch * from.batch_stride + row * from.leading_dimension;
                    const std::size_t put = batch * to.batch_stride + row * to.leading_dimension;
                    std::memcpy(static_cast<std::byte*>(to.data) + put * size,
                                static_cast<const std::byte*>(from.data) + at * size,
                                from.cols * size);
                  }
                });
}

void EigenBackend::transpose(Stream& stream, ConstMatrixView x, TensorView y) {
  for_floating(x.dtype, "transpose", [&]<typename T>() {
    parallel_rows(stream, x.batch * x.cols, x.rows, [&](std::size_t begin, std::size_t end) {
      for (std::size_t b = begin / x.cols; b * x.cols < end; ++b) {
        const std::size_t first = std::max(begin, b * x.cols) - b * x.cols;
        const std::size_t last = std::min(end - b * x.cols, x.cols);
        const T* from = data_of<T>(x) + b * x.batch_stride;
        T* to = data_of<T>(y) + b * x.rows * x.cols;
        for (std::size_t i = 0; i < x.rows; ++i, from += x.leading_dimension) {
          for (std::size_t j = first; j < last; ++j) to[j * x.rows + i] = from[j];
        }
      }
    });
  });
}

void EigenBackend::fill(Stream& stream, TensorView to, double value) {
  for_any_of<Bfloat16, Float16>(to.dtype, [&]<typename T>() {
    parallel_elements(stream, to.num_elements, [&](std::size_t begin, std::size_t end) {
      std::fill(data_of<T>(to) + begin, data_of<T>(to) + end, static_cast<T>(value));
    });
  });
}

void EigenBackend::gather_rows(Stream& stream, ConstMatrixView source, ConstTensorView indices,
                               MatrixView to, double scale) {
  const auto* index = data_of<std::int64_t>(indices);
  for (std::size_t i = 0; i < to.rows; ++i) {
    require(index[i] >= 0 && static_cast<std::size_t>(index[i]) < source.rows, ErrorCode::Shape,
            "gather_rows", "index {} (at {}) is outside the source's {} rows", index[i], i,
            source.rows);
  }
  if (source.dtype == DType::uint8) return gather<std::uint8_t>(stream, source, index, to, scale);
  for_floating(source.dtype, "gather_rows",
               [&]<typename From>() { gather<From>(stream, source, index, to, scale); });
}

}  // namespace lockstep::kernels
