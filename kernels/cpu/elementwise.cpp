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

void EigenBackend::add(Stream& stream, const Add& call) {
  require_alike("add", call.a, {{"b", call.b}, {"y", call.y}});
  binary(stream, "add", call.a, call.b, call.y, [](auto left, auto right) { return left + right; });
}

void EigenBackend::multiply(Stream& stream, const Multiply& call) {
  require_alike("multiply", call.a, {{"b", call.b}, {"y", call.y}});
  binary(stream, "multiply", call.a, call.b, call.y,
         [](auto left, auto right) { return left * right; });
}

void EigenBackend::scale(Stream& stream, const Scale& call) {
  require_alike("scale", call.x, {{"y", call.y}});
  for_floating(call.x.dtype, "scale", [&]<typename T>() {
    parallel_elements(stream, call.x.num_elements, [&](std::size_t begin, std::size_t end) {
      const T* in = data_of<T>(call.x);
      T* out = data_of<T>(call.y);
      const T s = static_cast<T>(call.factor);
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = begin; i < end; ++i) out[i] = s * in[i];
    });
  });
}

void EigenBackend::axpy(Stream& stream, const Axpy& call) {
  require_alike("axpy", call.x, {{"y", call.y}});
  binary(stream, "axpy", call.x, call.y, call.y, [factor = call.factor](auto in, auto out) {
    return out + static_cast<decltype(in)>(factor) * in;
  });
}

void EigenBackend::activation_forward(Stream& stream, const ActivationForward& call) {
  for_floating(call.x.dtype, "activation", [&]<typename T>() {
    for_activation(call.activation, [&](auto f) {
      parallel_elements(stream, call.x.num_elements, [&](std::size_t begin, std::size_t end) {
        const T* in = data_of<T>(call.x);
        T* out = data_of<T>(call.y);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) out[i] = f.forward(in[i]);
      });
    });
  });
}

void EigenBackend::activation_backward(Stream& stream, const ActivationBackward& call) {
  for_floating(call.saved.dtype, "activation backward", [&]<typename T>() {
    for_activation(call.activation, [&](auto f) {
      parallel_elements(stream, call.saved.num_elements, [&](std::size_t begin, std::size_t end) {
        const T* value = data_of<T>(call.saved);
        const T* in = data_of<T>(call.grad_y);
        T* out = data_of<T>(call.grad_x);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) out[i] = f.backward(value[i], in[i]);
      });
    });
  });
}

}  // namespace lockstep::kernels
