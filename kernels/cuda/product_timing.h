// How long a product takes on this GPU.
#pragma once

#include <optional>

#include "kernels/cuda/product_plan.h"

namespace lockstep::kernels::cuda {

// A stream on which nobody else works, one per GPU. Never destroyed.
Stream& timing_stream(Stream& like);

// Times products on timing_stream(). All outputs go to memory of its own; inputs are read where
// they are, whatever they hold at that moment: the time depends on sizes, not on values. Throws
// nothing for lack of memory: has_memory() says it.
class ProductTimer {
 public:
  // `stream`: whose product this is.
  ProductTimer(Stream& stream, const Product& product);
  ~ProductTimer();
  ProductTimer(const ProductTimer&) = delete;
  ProductTimer& operator=(const ProductTimer&) = delete;

  bool has_memory() const { return memory_ != nullptr; }

  // Microseconds of one product as the plan computes it, inside a stream of such products: several
  // are captured into a graph, since a small product takes less time than its launch from the host,
  // as many for every plan, and the graph is launched several times without a pause. The least of
  // three such runs. A GPU that has been idle is kept busy first, until its clock has risen.
  // A mask that is wanted but that the plan does not write is charged with the kernel that backward
  // will need for it. Of a plan that is clearly slower than `best_so_far` what one product took.
  // Nothing if the library refuses the plan, or it cannot be captured. Throws Error{Cuda} if the
  // GPU itself has failed.
  std::optional<double> microseconds(const ProductPlan& plan,
                                     const std::optional<double>& best_so_far);

 private:
  bool launch_once(const ProductPlan& plan);
  std::optional<double> measure(const ProductPlan& plan, const std::optional<double>& best_so_far);
  double run_graph(cudaGraphExec_t graph, int num_launches) const;
  void spin(cudaGraphExec_t graph) const;

  Stream& stream_;
  Product product_;  // with its outputs in memory_
  void* memory_ = nullptr;
  int num_per_graph_ = 0;  // products; set by the first plan that is measured
};

}  // namespace lockstep::kernels::cuda
