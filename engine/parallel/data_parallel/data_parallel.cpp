#include "engine/parallel/data_parallel/data_parallel.h"

#include "engine/core/error.h"
#include "engine/parallel/data_parallel/steps.h"

namespace lockstep::parallel {
namespace {

using ExchangesBySize = std::map<std::size_t, std::vector<std::shared_ptr<StatisticsExchange>>>;

// The steps, with options that resolve() has checked.
Variable run(nn::Module& module, const Variable& input, const DataParallelOptions& options,
             ExchangesBySize& sums) {
  require_on_device(module, options.devices[0]);
  if (options.devices.size() == 1) {
    return to(module(to(input, options.devices[0])), *options.output_device);
  }
  const std::vector<Variable> shards = scatter(input, options.devices, options.dim);
  const std::vector<Device> used(
      options.devices.begin(),
      options.devices.begin() + static_cast<std::ptrdiff_t>(shards.size()));
  const auto replicas = replicate(module, used);
  if (options.batch_norm == BatchNormRows::all && used.size() > 1) {
    auto& groups = sums[used.size()];
    if (groups.empty()) groups = make_statistics_exchanges(used.size());
    sync_batch_norm(replicas, groups);
  }
  const std::vector<Variable> outputs = parallel_apply(replicas, shards);
  return gather(outputs, *options.output_device, options.dim);
}

}  // namespace

Variable data_parallel(const std::shared_ptr<nn::Module>& module, const Variable& input,
                       const DataParallelOptions& options) {
  require(module != nullptr, ErrorCode::Usage, "data_parallel", "there is no module to run");
  if (const auto* wrapper = dynamic_cast<const DataParallel*>(module.get())) {
    return data_parallel(wrapper->module(), input, options);
  }
  ExchangesBySize sums;
  return run(*module, input, resolve(options, *module), sums);
}

DataParallel::DataParallel(std::shared_ptr<nn::Module> module, const DataParallelOptions& options) {
  require(module != nullptr, ErrorCode::Usage, "DataParallel", "there is no module to wrap");
  require(module->type_name() != "DataParallel", ErrorCode::Usage, "DataParallel",
          "the module is wrapped in DataParallel already; wrap wrapper.module() to choose other "
          "devices");
  options_ = resolve(options, *module);
  register_child("module", std::move(module));
}

Variable DataParallel::forward(const Variable& input) {
  return run(*module(), input, options_, exchanges_);
}

}  // namespace lockstep::parallel
