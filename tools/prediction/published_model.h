// The nets of published tables: a row of models.csv, and how its parameters and its work are spread
// over layers.
#pragma once

#include <string>
#include <vector>

#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"
#include "tools/prediction/csv_table.h"

namespace lockstep::tools {

struct PublishedModel {
  std::string name;
  double parameters = 0;
  double gradient_bytes = 0;
  double forward_flops = 0;  // of a sample, as the table counts them
};

// Columns model, parameters, gradient_MB, forward_GFLOP_per_sample. Throws Error{Io} that names
// file and line.
std::vector<PublishedModel> read_models(const std::string& path);

// How many samples an epoch has, where a table counts in epochs: ImageNet's 1,281,167, or for nets
// of less than 0.1 GFLOP MNIST's 60,000.
double epoch_samples(const PublishedModel& model);

// What one device does in a step of `batch` samples that takes it step_seconds. The optimizer takes
// what its memory traffic does. Of a net of dense layers alone (at most 2.5 operations a parameter
// and sample) the arithmetic at 80 % of peak grows with the batch, and what else the step took is a
// fixed cost; of any other net, all of the step but the optimizer grows with it. A third of it is
// forward.
//
// Layers: the published shapes of alexnet, vgg and lenet; "mlp a-b-c" by its sizes; any other net
// has 54 layers of three tensors whose bytes double four times from the first to the last, with
// equal work (ResNet's stages), or where it has less than 30 operations a parameter, three large
// tensors behind the others, as AlexNet has.
predict::Workload calibrated_workload(const PublishedModel& model,
                                      const predict::DeviceProfile& device, double batch,
                                      double step_seconds);

// A guess for a table that gives no batch, so that no step is known: three times the forward
// operations at 30 % of peak, and the optimizer.
double guessed_step_seconds(const PublishedModel& model, const predict::DeviceProfile& device,
                            double batch);

}  // namespace lockstep::tools
