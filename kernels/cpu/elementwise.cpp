#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// y[i] = function(a[i], b[i]).
template <typename Function>
void binary(Stream& stream, const char* operation, const ConstTensorView& a,
            const ConstTensorView& b, const TensorView& y, Function function) {
  for_floating(a.dtype, operation, [&]<typename T>() {
    parallel_elements(stream, a.num_elements, [&](std::size_t begin, std::size_t end) {
      const T* left = data_of<T>(a);
      const T* right = data_of<T>(b);
      T* out = data_of<T>(y);
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = begin; i < end; ++i) out[i] = function(left[i], right[i]);
    });
  });
}

}  // namespace

void EigenBackend::add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  require_alike("add", a, {{"b", b}, {"y", y}});
  binary(stream, "add", a, b, y, [](auto left, auto right) { return left + right; });
}

void EigenBackend::multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  require_alike("multiply", a, {{"b", b}, {"y", y}});
  binary(stream, "multiply", a, b, y, [](auto left, auto right) { return left * right; });
}

void EigenBackend::scale(Stream& stream, ConstTensorView x, double factor, TensorView y) {
  require_alike("scale", x, {{"y", y}});
  for_floating(x.dtype, "scale", [&]<typename T>() {
    parallel_elements(stream, x.num_elements, [&](std::size_t begin, std::size_t end) {
      const T* in = data_of<T>(x);
      T* out = data_of<T>(y);
      const T s = static_cast<T>(factor);
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = begin; i < end; ++i) out[i] = s * in[i];
    });
  });
}

void EigenBackend::axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) {
  require_alike("axpy", x, {{"y", y}});
  binary(stream, "axpy", x, y, y,
         [factor](auto in, auto out) { return out + static_cast<decltype(in)>(factor) * in; });
}

void EigenBackend::activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                      TensorView y) {
  for_floating(x.dtype, "activation", [&]<typename T>() {
    for_activation(activation, [&](auto f) {
      parallel_elements(stream, x.num_elements, [&](std::size_t begin, std::size_t end) {
        const T* in = data_of<T>(x);
        T* out = data_of<T>(y);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) out[i] = f.forward(in[i]);
      });
    });
  });
}

void EigenBackend::activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                       ConstTensorView grad_y, TensorView grad_x) {
  for_floating(saved.dtype, "activation backward", [&]<typename T>() {
    for_activation(activation, [&](auto f) {
      parallel_elements(stream, saved.num_elements, [&](std::size_t begin, std::size_t end) {
        const T* value = data_of<T>(saved);
        const T* in = data_of<T>(grad_y);
        T* out = data_of<T>(grad_x);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) out[i] = f.backward(value[i], in[i]);
      });
    });
  });
}

}  // namespace lockstep::kernels
