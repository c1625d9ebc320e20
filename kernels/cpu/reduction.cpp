// Sums, norms and maxima. Every sum is cut into fixed blocks and lanes, so that its bits depend
// neither on threads nor on addresses.
#include <cmath>
#include <vector>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kBlock = 8192;  // elements added by one task
constexpr std::size_t kLanes = 16;    // partial sums that are added in parallel

// The sum of function(x[i]), in double.
template <typename T, typename Function>
double sum_of(Stream& stream, const T* x, std::size_t num_elements, Function function) {
  std::vector<double> partials((num_elements + kBlock - 1) / kBlock);
  parallel_blocks(stream, num_elements, kBlock, 1,
                  [&](std::size_t block, std::size_t begin, std::size_t end) {
                    double lanes[kLanes] = {};
                    std::size_t i = begin;
                    for (; i + kLanes <= end; i += kLanes) {
                      for (std::size_t lane = 0; lane < kLanes; ++lane) {
                        lanes[lane] += function(static_cast<double>(x[i + lane]));
                      }
                    }
                    for (; i < end; ++i) lanes[0] += function(static_cast<double>(x[i]));
                    for (double lane : lanes) partials[block] += lane;
                  });
  double total = 0;
  for (double partial : partials) total += partial;
  return total;
}

// The first largest element; a NaN counts as larger than everything, as in PyTorch.
template <typename T>
std::size_t argmax(const T* x, std::size_t num_elements) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < num_elements; ++i) {
    if (std::isnan(x[i])) return i;
    if (x[i] > x[best]) best = i;
  }
  return best;
}

}  // namespace

void EigenBackend::sum(Stream& stream, const Sum& call) {
  for_floating(call.x.dtype, "sum", [&]<typename T>() {
    const auto itself = [](double value) { return value; };
    *data_of<T>(call.y) =
        static_cast<T>(sum_of(stream, data_of<T>(call.x), call.x.num_elements, itself));
  });
}

void EigenBackend::argmax_rows(Stream& stream, const ArgmaxRows& call) {
  for_floating(call.x.dtype, "argmax_rows", [&]<typename T>() {
    parallel_rows(stream, call.x.rows, call.x.cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        data_of<std::int64_t>(call.y)[i] =
            static_cast<std::int64_t>(argmax(row_of<T>(call.x, i), call.x.cols));
      }
    });
  });
}

void EigenBackend::norm(Stream& stream, const Norm& call) {
  double total = 0;
  for (const ConstTensorView& tensor : call.x) {
    for_floating(tensor.dtype, "norm", [&]<typename T>() {
      const auto square = [](double value) { return value * value; };
      total += sum_of(stream, data_of<T>(tensor), tensor.num_elements, square);
    });
  }
  for_floating(call.y.dtype, "norm",
               [&]<typename T>() { *data_of<T>(call.y) = static_cast<T>(std::sqrt(total)); });
}

}  // namespace lockstep::kernels
