// The puzzles' one header: what a GPU can do in a training step. You write schedule(), which says
// what each GPU does, in which order.
//
// The model is a stack of layers of one size; the batch is cut into micro-batches. Sizes of a
// puzzle stand on its page. n below: the number of GPUs that load the layer.
//
// Two streams. forward, backward and update run one after the other on the GPU's compute stream.
// Collectives run beside them, in the order of the calls, on its communication stream; wait() lets
// the compute stream wait for one. Computing and communicating at once slows both down.
//
// Memory. A GPU holds what it loads, the gradients, and the activations: each forward pass adds one
// per micro-batch, which its backward pass gives back. free_...() gives back the rest.
#pragma once

#include "lab.h"

namespace lab {

// How much of a layer a GPU holds from the beginning to the end of the step. A shard is 1/n.
enum class Keep {
  whole,          // parameters and the optimizer's state
  sharded_state,  // whole parameters, a shard of the state
  shard,          // a shard of both
};

// A collective that was started.
struct Work {
  int number = -1;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual int rank() const = 0;  // 0 ... world_size() - 1
  virtual int world_size() const = 0;
  virtual int num_layers() const = 0;
  virtual int num_micro_batches() const = 0;  // of all GPUs together

  // Before the step. All GPUs that load a layer keep equally much of it.
  virtual void load(int layer, Keep keep = Keep::whole) = 0;

  // Needs the layer's whole parameters and, but for layer 0, which reads the batch, the output of
  // the layer before for the same micro-batch. The last layer's output becomes the loss.
  virtual void forward(int layer, int micro_batch) = 0;
  // Needs the same input, the whole parameters, and, but for the last layer, the gradient that the
  // layer behind passed back. Adds to the layer's gradient. Every micro-batch goes back once
  // through every layer, on one GPU. Shares are weighted, so that the sum over all micro-batches is
  // the gradient of the batch's mean loss.
  virtual void backward(int layer, int micro_batch) = 0;

  // Collectives of the GPUs that load the layer, which all call them in the same order.
  // Sums the layer's gradient over them. They send 2(n-1)/n of it.
  virtual Work all_reduce(int layer) = 0;
  // Each GPU gets its shard of the sum, added to the shard that it has already. The whole gradient
  // stays until free_gradient(). They send (n-1)/n of it.
  virtual Work reduce_scatter(int layer) = 0;
  // Makes the parameters whole from all shards. They send (n-1)/n of them.
  virtual Work all_gather(int layer) = 0;
  virtual void wait(Work work) = 0;

  // SGD with momentum, on what the GPU keeps of the state: whole, or its shard. Needs the reduced
  // gradient, and gives its memory back.
  virtual void update(int layer) = 0;

  virtual void free_parameters(int layer) = 0;  // gathered ones; the GPU's shard stays
  virtual void free_gradient(int layer) = 0;    // the whole one, after reduce_scatter
  // The input of the layer: to be computed again before backward.
  virtual void free_activation(int layer, int micro_batch) = 0;

  // Between the GPUs of a pipeline: the input of `layer`, and the gradient of that input, move to
  // another GPU. Sending goes on by itself; receiving waits. Messages from one GPU to another
  // arrive in the order in which they were sent.
  virtual void send_activation(int layer, int micro_batch, int to) = 0;
  virtual void receive_activation(int layer, int micro_batch, int from) = 0;
  virtual void send_gradient(int layer, int micro_batch, int to) = 0;
  virtual void receive_gradient(int layer, int micro_batch, int from) = 0;
};

// Called once for each GPU.
void schedule(Gpu& gpu);

}  // namespace lab
