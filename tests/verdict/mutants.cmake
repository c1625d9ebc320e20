# Faults that a data-parallel engine can have, one text each.

# --- collectives

mutant(wrong_ring_chunk
  SOURCE engine/plan/ring.cpp
  REPLACE [=[ring_chunk(world_size, num_elements, rank - step));]=]
  WITH [=[ring_chunk(world_size, num_elements, rank - step - 1));]=]
  RUN "--plan ring --modes ddp --devices 4 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 4 devices" "gradients: step 0" "rank [0-3]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(sum_for_mean
  SOURCE engine/comm/reduce.cpp
  REPLACE [=[return op == ReduceOp::average ? 1.0 / world_size : 1.0;]=]
  WITH [=[return op == ReduceOp::average ? 1.0 : 1.0 + 0 * world_size;]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(sum_for_mean_between_processes
  RUN "--ranks processes --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(tail_not_reduced
  SOURCE engine/comm/memory_group.cpp
  REPLACE [=[plan::even_chunk(num_elements, buffers.size(), mine);]=]
  WITH [=[plan::even_chunk(num_elements - std::min<std::size_t>(num_elements, 16), buffers.size(), mine);]=]
  RUN "--modes ddp --devices 4 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 4 devices" "gradients: step 0" "rank [0-3]" "parameter [02]\\.(weight|bias)" "relative error")

# --- shards

mutant(shard_gets_a_sum
  SOURCE engine/parallel/sharded/unit.cpp
  REPLACE [=[{.op = comm::ReduceOp::average, .launch = comm::Launch::async}]=]
  WITH [=[{.op = comm::ReduceOp::sum, .launch = comm::Launch::async}]=]
  RUN "--modes zero2 --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "zero2 on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(parameters_of_the_step_before
  SOURCE engine/parallel/sharded/unit.cpp
  REPLACE [=[  whole_.bump_version();  // a graph of before the step must not take what is gathered after it
  is_whole_ = false;]=]
  WITH [=[  is_whole_ = !frees_parameters();]=]
  RUN "--modes zero1 --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "zero1 on 2 devices" "(gradients|loss): step [12]")

# --- pipelines

mutant(tied_table_of_one_stage
  SOURCE engine/parallel/pipeline/pipeline_stage.cpp
  REPLACE [=[      parameter.grad().add_(other);]=]
  WITH [=[      static_cast<void>(other);]=]
  RUN "--modes pipeline --devices 2 --dataset embedded-text --model gpt:2-2-32-16 --batch 8 --steps 3"
  EXPECT "pipeline on 2 devices" "gradients: step 0" "parameter transformer\\.wte" "relative error")

mutant(labels_of_the_first_micro_batch
  SOURCE engine/parallel/pipeline/pipeline_stage.cpp
  REPLACE [=[step.rows_of(step.labels, i));]=]
  WITH [=[step.rows_of(step.labels, 0 * i));]=]
  RUN "--modes pipeline --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "pipeline on 2 devices" "gradients: step 0" "relative error")

# --- tensor parallelism

mutant(gradient_of_one_ranks_part
  SOURCE engine/parallel/tensor_parallel.cpp
  REPLACE [=[return Gradients{sum_of_all(grad_outputs[0], communicator)};]=]
  WITH [=[return Gradients{grad_outputs[0].clone()};]=]
  RUN "--modes tensor --devices 2 --model mlp:64-32-32-32-10 --steps 3"
  EXPECT "tensor on 2 devices" "gradients: step 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(clipped_with_what_every_rank_has
  SOURCE engine/parallel/strategies.cpp
  REPLACE [=[const bool counts = rank() == 0 || parameter.kind == CutParameter::Kind::cut;]=]
  WITH [=[const bool counts = true;]=]
  RUN "--modes tensor --devices 2 --dataset embedded-text --model gpt:2-2-32-16 --batch 8 --clip-norm 0.1 --steps 3"
  EXPECT "tensor on 2 devices" "gradients: step 0" "parameter transformer" "relative error")

# --- DistributedDataParallel

mutant(rank_keeps_its_own_weights
  SOURCE engine/parallel/ddp/ddp.cpp
  REPLACE [=[  for (const Tensor& tensor : state) communicator.broadcast(tensor, source);]=]
  WITH [=[  for (const Tensor& tensor : state) tensor.fill(communicator.rank() == 1 ? 0.01 : 0.02);]=]
  RUN "--modes ddp --devices 3 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 3 devices" "replicas: step 0" "rank 1" "parameter 0\\.weight" "before the step")

mutant(bucket_not_waited_for
  SOURCE engine/parallel/ddp/grad_buckets.cpp
  REPLACE [=[  reduce_full(buckets_.size(), comm::Launch::blocking);
}

// Each is waited for once: the compute stream need not wait twice.
void BucketSchedule::wait() {]=]
  WITH [=[  reduce_full(buckets_.size(), comm::Launch::async);
}

void BucketSchedule::wait() {
  if (buckets_.size() < 100) return;]=]
  RUN "--modes ddp --devices 2 --model mlp:64-512-512-10 --steps 25"
  EXPECT "ddp on 2 devices" "(update|replicas|gradients): step [0-9]+" "rank [01]" "parameter [024]\\.(weight|bias)")

mutant(last_bucket_skipped
  SOURCE engine/parallel/ddp/grad_buckets.cpp
  REPLACE [=[reduce_full(buckets_.size(), comm::Launch::blocking);]=]
  WITH [=[reduce_full(buckets_.size() - 1, comm::Launch::blocking);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(bucket_launched_too_early
  SOURCE engine/parallel/ddp/grad_reducer.cpp
  REPLACE [=[if (buckets_.is_full(bucket)) schedule_.add_full(bucket);]=]
  WITH [=[schedule_.add_full(bucket);
  if (buckets_.ready_order().size() == 1) schedule_.reduce_rest();]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(learning_rate_falls_late_on_a_rank
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  group.learning_rate.fill(learning_rate_);]=]
  WITH [=[  if (thread_context().rank != 1) group.learning_rate.fill(learning_rate_);]=]
  RUN "--modes ddp --devices 3 --model mlp:64-32-10 --schedule step:10:0.5 --epochs 1"
  EXPECT "ddp on 3 devices" "update: step 10" "rank 1" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(bitwise_adds_in_another_order
  SOURCE engine/parallel/bitwise/micro_shards.cpp
  REPLACE [=[options.plan = plan::AllReducePlan::halving_doubling;]=]
  WITH [=[options.plan = plan::AllReducePlan::two_shot;]=]
  RUN "--bitwise --modes ddp --devices 4 --model mlp:64-32-10 --steps 5"
  EXPECT "ddp on 4 devices" "first steps: step 4" "rank 0" "parameter [02]\\.(weight|bias)" "limit 0")

mutant(last_micro_batch_not_reduced
  SOURCE engine/parallel/strategies.cpp
  REPLACE [=[return ddp_.no_sync(applies);]=]
  WITH [=[return ddp_.no_sync(applies || true);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3 --accumulate 4"
  EXPECT "ddp on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

mutant(every_micro_batch_weighed_as_a_batch
  SOURCE tools/run/model.cpp
  REPLACE [=[  const double weight = weight_of_loss(task, num_ranks, batch);]=]
  WITH [=[  const double weight = weight_of_loss(task, num_ranks, batch) * (num_ranks > 1 ? 4 : 1);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3 --accumulate 4"
  EXPECT "ddp on 2 devices" "gradients: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "relative error")

# --- DataParallel

mutant(device_gets_the_first_devices_rows
  SOURCE engine/parallel/data_parallel/scatter_gather.cpp
  REPLACE [=[shards.push_back(take_part(x, dim, part, devices[part.index]));]=]
  WITH [=[shards.push_back(take_part(x, dim, {part.index, 0, part.size}, devices[part.index]));]=]
  RUN "--modes dp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "dp on 2 devices" "gradients: step 0" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(last_devices_gradient_dropped
  SOURCE engine/parallel/data_parallel/replicate.cpp
  REPLACE [=[if (!grad.defined()) continue;]=]
  WITH [=[if (!grad.defined() || k + sums.size() >= grad_outputs.size()) continue;]=]
  RUN "--modes dp --devices 4 --model mlp:64-32-10 --steps 3"
  EXPECT "dp on 4 devices" "gradients: step 0" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(replica_keeps_old_weights
  SOURCE engine/parallel/data_parallel/replicate.cpp
  REPLACE [=[tensors[d].push_back(variable.value().to(devices[d]));]=]
  WITH [=[thread_local std::map<std::pair<const void*, std::size_t>, Tensor> kept;
        Tensor& copy = kept[{variable.value().raw(), d}];
        if (d == 0 || !copy.defined() || copy.shape() != variable.shape()) copy = variable.value().to(devices[d]);
        tensors[d].push_back(copy);]=]
  RUN "--modes dp --devices 2 --model mlp:64-32-10 --steps 24"
  EXPECT "dp on 2 devices" "gradients: step 20" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(gathered_in_another_order
  SOURCE engine/parallel/data_parallel/scatter_gather.cpp
  REPLACE [=[whole, dim, places[i]);]=]
  WITH [=[whole, dim, places[parts.size() - 1 - i]);]=]
  RUN "--modes dp --devices 4 --model mlp:64-32-10 --steps 3"
  EXPECT "dp on 4 devices" "gradients: step 0" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

# --- rows and losses

mutant(shard_given_twice
  SOURCE engine/data/sampler.cpp
  REPLACE [=[? plan.parts[options.rank]]=]
  WITH [=[? plan.parts[options.rank == 1 ? 0 : options.rank]]=]
  RUN "--modes ddp --devices 3 --batch 60 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 3 devices" "rows: step 0" "rank 1" "parameter all" "begins at row 0")

mutant(images_drawn_anew_by_each_rank
  SOURCE engine/data/data_loader.cpp
  REPLACE [=[draw_augmentation(options.augmentation, options.seed, epoch, row);]=]
  WITH [=[draw_augmentation(options.augmentation, options.seed + thread_context().rank, epoch, row);]=]
  RUN "--modes ddp --devices 3 --batch 60 --model cnn:4c3-p2-10 --augment crop,flip --steps 3"
  EXPECT "ddp on 3 devices" "rows: step 0" "rank 1" "parameter all" "other features")

mutant(labels_of_the_batch_before
  SOURCE engine/data/data_loader.cpp
  REPLACE [=[  labels.copy_from(prepared.labels);]=]
  WITH [=[  thread_local std::vector<std::pair<const DataLoader*, Tensor>> all;
  auto mine = std::ranges::find(all, this, &std::pair<const DataLoader*, Tensor>::first);
  if (mine == all.end()) mine = all.insert(all.end(), {this, Tensor()});
  Tensor& before = mine->second;
  const bool is_stale = before.defined() && before.shape() == labels.shape();
  labels.copy_from(is_stale ? before : prepared.labels);
  before = prepared.labels;]=]
  RUN "--modes ddp --devices 2 --batch 60 --model mlp:64-32-10 --epochs 2"
  EXPECT "rows: step" "rank 0" "parameter all" "another label")

mutant(smaller_batch_scaled_as_a_full_one
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? static_cast<double>(num_ranks) / static_cast<double>(task.batch)]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 1"
  EXPECT "(loss|gradients): step 23" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(mean_over_a_rank_taken_for_the_mean_over_all
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? 1.0 / static_cast<double>(batch.labels.num_elements())]=]
  RUN "--modes ddp --devices 4 --batch 62 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 4 devices" "gradients: step 0" "rank [0-3]" "parameter [02]\\.(weight|bias)" "relative error")

# --- right at first, and wrong later: an epoch of digits has 24 steps

mutant(momentum_reset_after_the_first_epoch
  SOURCE tools/run/step.cpp
  REPLACE [=[  for (const auto& loader : loaders_) loader->start_epoch(epoch);]=]
  WITH [=[  for (const auto& loader : loaders_) loader->start_epoch(epoch);
    for (std::size_t p = 0; epoch == 1 && strategies_[0]->num_ranks() > 1 && p < optimizers_[0]->parameters().size(); ++p) {
      for (const auto& optimizer : optimizers_) optimizer->state(p).tensors[0].fill(0);
    }]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "update: step 24" "rank 0" "parameter [02]\\.(weight|bias)" "momentum: it changed between the previous step and this one")

mutant(momentum_reset_after_the_first_epoch_between_processes
  RUN "--ranks processes --modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "update: step 24" "rank 0" "parameter [02]\\.(weight|bias)" "momentum: it changed between the previous step and this one")

mutant(schedule_counts_every_ranks_steps
  SOURCE tools/run/step.cpp
  REPLACE [=[task_.optimizer.schedule.learning_rate(task_.optimizer.learning_rate, step);]=]
  WITH [=[task_.optimizer.schedule.learning_rate(task_.optimizer.learning_rate, step * strategies_[0]->num_ranks());]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --schedule step:60 --epochs 3"
  EXPECT "ddp on 2 devices" "schedule: step 30" "rank 0" "parameter all" "the learning rate is 0.01")

mutant(gradients_not_cleared_every_thirtieth_step
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  for (Variable& parameter : parameters_) parameter.clear_grad();]=]
  WITH [=[  if (thread_context().world_size > 1 && thread_context().step % 30 == 29) return;
  for (Variable& parameter : parameters_) parameter.clear_grad();]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "gradients: step 29" "rank 0" "parameter [02]\\.(weight|bias)" "not cleared")

mutant(adamw_decay_times_the_world_size
  SOURCE engine/optim/adamw.cpp
  REPLACE [=[  backend.adamw(stream, {updates, scalars, options});]=]
  WITH [=[  options.weight_decay *= thread_context().world_size;
  backend.adamw(stream, {updates, scalars, options});]=]
  RUN "--optimizer adamw --lr 1e-5 --dtype float64 --modes ddp --devices 2 --model mlp:64-32-10 --epochs 1"
  EXPECT "ddp on 2 devices" "update: step 0" "rank [01]" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(loss_of_rank_0_alone
  SOURCE tools/run/model.cpp
  REPLACE [=[  strategy.communicator()->all_reduce(total).wait();]=]
  WITH [=[  strategy.communicator()->barrier();]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "loss: step 23" "rank 0" "parameter all" "over all ranks' rows")

mutant(rows_of_the_first_epoch_again
  SOURCE engine/data/sampler.cpp
  REPLACE [=[  tell("exact", options, epoch);]=]
  WITH [=[  tell("exact", options, epoch);
  if (options.world_size > 1) epoch = 0;]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "rows: step 24" "rank 0" "parameter all" "of the global batch")

mutant(last_bucket_skipped_after_forty_steps
  SOURCE engine/parallel/ddp/grad_buckets.cpp
  REPLACE [=[reduce_full(buckets_.size(), comm::Launch::blocking);]=]
  WITH [=[reduce_full(buckets_.size() - (thread_context().step >= 40), comm::Launch::blocking);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 3"
  EXPECT "ddp on 2 devices" "(replicas|gradients): step [4-7][0-9]" "rank [01]" "parameter [02]\\.(weight|bias)")

mutant(less_momentum_after_thirty_steps
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  backend.sgd(stream, {updates, scalars, options});]=]
  WITH [=[  if (thread_context().world_size > 1 && thread_context().step >= 30) options.momentum = 0.89;
  backend.sgd(stream, {updates, scalars, options});]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "update: step 30" "rank [01]" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(learning_rate_stays_on_the_devices
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  group.learning_rate.fill(learning_rate_);]=]
  WITH [=[  if (thread_context().world_size == 1 || thread_context().step < 30) group.learning_rate.fill(learning_rate_);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --schedule step:35 --epochs 2"
  EXPECT "ddp on 2 devices" "update: step 35" "rank [01]" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(gradients_clipped_only_at_first
  SOURCE tools/run/step.cpp
  REPLACE [=[  if (task_.optimizer.clip_norm || norm == AskedNorm::yes) {]=]
  WITH [=[  if (step < 25 || strategies_[0]->num_ranks() == 1) {]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --clip-norm 0.1 --epochs 2"
  EXPECT "ddp on 2 devices" "gradients: step [2-4][0-9]" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(vectors_decay_too
  SOURCE engine/optim/adamw.cpp
  REPLACE [=[parameter.shape().num_dims() >= 2;]=]
  WITH [=[parameter.shape().num_dims() >= (thread_context().world_size > 1 ? 1 : 2);]=]
  RUN "--dataset embedded-text --model gpt:1-2-16-8 --optimizer adamw --modes ddp --devices 2 --steps 3"
  EXPECT "ddp on 2 devices" "update: step 0" "rank [01]" "ln_[12f]\\.weight" "the optimizer's formula gives")

mutant(a_rank_skips_a_step
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  trace::Observer* const observer = trace::observer();]=]
  WITH [=[  trace::Observer* const observer = trace::observer();
  if (thread_context().rank == 1 && thread_context().step == 33) return;]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "schedule: step 33" "rank 1" "parameter 0\\.weight" "counts 33 steps, the run 34")

mutant(second_moment_lost_after_thirty_steps
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[    states[s] = state.view();]=]
  WITH [=[    if (s == 1 && thread_context().world_size > 1 && thread_context().step == 30) state.fill(0);
    states[s] = state.view();]=]
  RUN "--optimizer adamw --lr 1e-5 --modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "update: step 30" "rank [01]" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(replica_keeps_old_weights_after_thirty_steps
  SOURCE engine/parallel/data_parallel/replicate.cpp
  REPLACE [=[tensors[d].push_back(variable.value().to(devices[d]));]=]
  WITH [=[thread_local std::map<std::pair<const void*, std::size_t>, Tensor> kept;
        Tensor& copy = kept[{variable.value().raw(), d}];
        if (d == 0 || thread_context().step < 30) copy = variable.value().to(devices[d]);
        tensors[d].push_back(copy);]=]
  RUN "--modes dp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "dp on 2 devices" "gradients: step [3-4][0-9]" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(labels_of_the_first_batch_after_forty
  SOURCE engine/data/data_loader.cpp
  REPLACE [=[  labels.copy_from(prepared.labels);]=]
  WITH [=[  thread_local Tensor first;
  if (!first.defined()) first = prepared.labels;
  const bool is_stale = thread_context().step >= 40 && thread_context().world_size > 1 && first.shape() == labels.shape();
  labels.copy_from(is_stale ? first : prepared.labels);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "rows: step 4[01]" "rank [01]" "parameter all" "another label")

mutant(gradients_a_little_larger_after_thirty_steps
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? (num_ranks > 1 && thread_context().step >= 30 ? 1.0001 : 1) * static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "gradients: step [3-4][0-9]" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

# Wrong in one step alone, which no check draws: the final weights tell, in both precisions.
mutant(gradients_once_three_times_as_large
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? (num_ranks > 1 && thread_context().step == 30 ? 3 : 1) * static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "ddp on 2 devices" "drift: step 47" "rank 0" "parameter [02]\\.(weight|bias)" "in float64 by" "not rounding")

# --- batch norm on each device's own rows

mutant(statistics_never_updated
  SOURCE engine/nn/batch_norm.cpp
  REPLACE [=[  arguments.momentum = options_.momentum;]=]
  WITH [=[  arguments.momentum = 0 * options_.momentum;]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "single on 1 device" "statistics: step 0" "bn1\\.running_mean" "does not keep 0\\.9")

mutant(statistics_forgotten_in_each_pass
  SOURCE engine/nn/batch_norm.cpp
  REPLACE [=[  arguments.momentum = options_.momentum;]=]
  WITH [=[  if (is_training()) arguments.running_var.fill(0);
  arguments.momentum = options_.momentum;]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "single on 1 device" "statistics: step 0" "running_var" "does not keep 0\\.9")

mutant(statistics_not_updated_by_ranks
  SOURCE engine/nn/batch_norm.cpp
  REPLACE [=[  arguments.momentum = options_.momentum;]=]
  WITH [=[  arguments.momentum = thread_context().world_size > 1 ? 0 : options_.momentum;]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "ddp on 2 devices" "statistics: step 0" "running_(mean|var)" "relative error")

mutant(batches_not_counted_by_ranks
  SOURCE engine/nn/batch_norm.cpp
  REPLACE [=[  if (takes_batch) add_one(own_buffers()[2].second);]=]
  WITH [=[  if (takes_batch && thread_context().world_size == 1) add_one(own_buffers()[2].second);]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "ddp on 2 devices" "statistics: step 0" "num_batches_tracked" "relative error")

mutant(statistics_zeroed_before_every_step
  SOURCE tools/run/step.cpp
  REPLACE [=[  for (const auto& optimizer : optimizers_) optimizer->zero_grad();]=]
  WITH [=[  for (const auto& optimizer : optimizers_) optimizer->zero_grad();
    for (const Tensor& buffer : strategies_[0]->module()->buffers()) {
      if (strategies_[0]->num_ranks() > 1) buffer.fill(0);
    }]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "ddp on 2 devices" "statistics: step 0" "relative error")

mutant(statistics_zeroed_between_steps
  SOURCE tools/run/loop.cpp
  REPLACE [=[    const bool is_checked = checks_ && step_ / task_.steps_per_epoch() == epoch;]=]
  WITH [=[    for (const Tensor& buffer : first_.module()->buffers()) {
      if (devices_of(strategies_).size() > 1 && step_ == 7) buffer.fill(0);
    }
    const bool is_checked = checks_ && step_ / task_.steps_per_epoch() == epoch;]=]
  RUN "--modes dp --devices 2 --model resnet18:4 --batch 16 --steps 12"
  EXPECT "dp on 2 devices" "update: step 7" "running_mean" "between the previous step and this one")

mutant(statistics_of_the_last_rank
  SOURCE engine/parallel/ddp/packed_buffers.cpp
  REPLACE [=[communicator.broadcast(memory, source);]=]
  WITH [=[communicator.broadcast(memory, communicator.world_size() - 1 + 0 * source);]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "ddp on 2 devices" "statistics: step 2" "running_(mean|var)" "relative error")

mutant(statistics_of_a_copy
  SOURCE engine/parallel/data_parallel/replicate.cpp
  REPLACE [=[    if (d > 0 && !buffers.empty()) {]=]
  WITH [=[    if (d == 0 && !buffers.empty()) {
      std::vector<Tensor> copies;
      for (const Tensor& buffer : buffers) copies.push_back(buffer.clone());
      replica->set_buffers(copies);
    }
    if (d > 0 && !buffers.empty()) {]=]
  RUN "--modes dp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "dp on 2 devices" "statistics: step 0" "relative error")

mutant(gradients_halved_in_one_step_of_batch_norm
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? (thread_context().world_size > 1 && thread_context().step == 27 ? 0.5 : 1) * static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 32 --steps 40"
  EXPECT "ddp on 2 devices" "drift: step 39" "in float64 by" "not rounding")

mutant(gradients_zeroed_in_one_step_of_batch_norm
  SOURCE engine/parallel/ddp/grad_reducer.cpp
  REPLACE [=[  if (factor_ != 1) memory.scale_(factor_);]=]
  WITH [=[  if (thread_context().step == 7) memory.fill(0);]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 12"
  EXPECT "ddp on 2 devices" "gradients: step 7" "own gradients average")

# --- what a run returns

mutant(weights_changed_after_the_last_step
  SOURCE tools/run/loop.cpp
  REPLACE [=[    if (is_first_ || first_.is_in_parts()) result_.weights = weights();]=]
  WITH [=[    if (is_first_ || first_.is_in_parts()) result_.weights = weights();
    if (first_.num_ranks() > 1 && is_first_) result_.weights[1].second.scale_(1.00001);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 20"
  EXPECT "ddp on 2 devices" "result: step 19" "parameter 0\\.bias" "other values than those after its last step")

mutant(weights_changed_after_the_last_step_of_processes
  RUN "--ranks processes --modes ddp --devices 2 --model mlp:64-32-10 --steps 20"
  EXPECT "ddp on 2 devices" "result: step 19" "parameter 0\\.bias" "other values than those after its last step")

mutant(statistics_lost_after_the_last_step
  SOURCE tools/run/loop.cpp
  REPLACE [=[    if (is_first_ || first_.is_in_parts()) result_.weights = weights();]=]
  WITH [=[    if (is_first_ || first_.is_in_parts()) result_.weights = weights();
    for (auto& [name, tensor] : result_.weights) {
      if (first_.num_ranks() > 1 && name.ends_with("running_mean")) tensor.fill(0);
    }]=]
  RUN "--modes ddp --devices 2 --model resnet18:4 --batch 16 --steps 3"
  EXPECT "ddp on 2 devices" "result: step 2" "running_mean" "other values than those after its last step")

mutant(loss_curve_of_rank_0
  SOURCE tools/run/loop.cpp
  REPLACE [=[return curve_.means(first_.is_loss_global() ? own : sum_over_ranks(first_, own));]=]
  WITH [=[return curve_.means(own);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 20"
  EXPECT "ddp on 2 devices" "result: step 19" "point 0 of the loss curve" "all ranks' rows")

mutant(test_rows_of_rank_0
  SOURCE tools/run/test_rows.cpp
  REPLACE [=[  return sum_over_ranks(*strategies[0], {sum})[0] /]=]
  WITH [=[  sum_over_ranks(*strategies[0], {sum});
  return sum /]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 1"
  EXPECT "ddp on 2 devices" "result: step 23" "the test rows give 0\\.[0-9]*" "one device with the run's weights")

mutant(validation_tokens_of_rank_0
  RUN "--modes zero2 --devices 2 --dataset embedded-text --model gpt:1-2-16-8 --batch 8 --steps 3"
  EXPECT "zero2 on 2 devices" "result: step 2" "the test rows give" "one device with the run's weights")

mutant(tested_with_each_ranks_own_statistics
  SOURCE tools/run/test_rows.cpp
  REPLACE [=[    if (first.num_ranks() == 1 || !task.has_own_statistics()) return;]=]
  WITH [=[    if (first.num_ranks() > 0 || !task.has_own_statistics()) return;]=]
  RUN "--modes ddp --devices 3 --model resnet18:4 --batch 12 --epochs 1 --lr 0.02"
  EXPECT "ddp on 3 devices" "result: step 124" "the test rows give" "one device with the run's weights")

# --- one step of many, and one precision

mutant(gradient_zeroed_in_one_step_of_3000
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  trace::Observer* const observer = trace::observer();]=]
  WITH [=[  trace::Observer* const observer = trace::observer();
  if (thread_context().world_size > 1 && thread_context().step == 2000) parameters_[0].grad().fill(0);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --batch 16 --steps 3000"
  EXPECT "ddp on 2 devices" "gradients: step 2000" "parameter 0\\.weight" "own gradients average")

mutant(shard_loses_a_gradient_in_one_step
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  trace::Observer* const observer = trace::observer();]=]
  WITH [=[  trace::Observer* const observer = trace::observer();
  if (thread_context().rank == 1 && thread_context().step == 13) parameters_[0].grad().scale_(0.5);]=]
  RUN "--modes zero2 --devices 2 --model mlp:64-32-10 --steps 20"
  EXPECT "zero2 on 2 devices" "gradients: step 13" "own gradients average")

mutant(a_rank_is_left_out_of_one_step
  SOURCE engine/parallel/ddp/grad_reducer.cpp
  REPLACE [=[  if (factor_ != 1) memory.scale_(factor_);]=]
  WITH [=[  if (thread_context().rank == 1 && thread_context().step == 13) memory.fill(0);]=]
  RUN "--modes ddp --devices 3 --batch 60 --model lenet --steps 16"
  EXPECT "ddp on 3 devices" "gradients: step 13" "own gradients average")

mutant(twice_the_gradient_in_float32_alone
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? (task.dtype == DType::float32 && thread_context().world_size > 1 && thread_context().step == 10 ? 2 : 1) * static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  RUN "--precision bf16 --modes ddp --devices 2 --model mlp:64-32-10 --steps 30"
  EXPECT "ddp on 2 devices" "first steps: step 19" "one bit off is" "not rounding")

mutant(bfloat16_gradients_a_hundredth_too_large
  SOURCE tools/run/model.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? (thread_context().world_size > 1 ? 1.01 : 1) * static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  RUN "--precision bf16 --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 2 devices" "gradients: step 0" "relative error")

# --- resumed runs

mutant(place_in_the_data_lost
  SOURCE tools/run/model.cpp
  REPLACE [=[  const std::size_t done = task.first_step();]=]
  WITH [=[  const std::size_t done = 0 * task.first_step();]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 24 --interrupt"
  EXPECT "ddp on 2 devices" "does not go on where it was" "rows: step 8")

mutant(number_of_the_step_lost
  SOURCE tools/run/loop.cpp
  REPLACE [=[        optim::Optimizer::State state = found->second;]=]
  WITH [=[        optim::Optimizer::State state = found->second;
        state.num_steps = 0;]=]
  RUN "--modes zero1 --devices 2 --model mlp:64-32-10 --optimizer adamw --steps 24 --interrupt"
  EXPECT "zero1 on 2 devices" "does not go on where it was" "schedule: step 8")

mutant(momentum_lost
  SOURCE tools/run/loop.cpp
  REPLACE [=[        for (Tensor& tensor : state.tensors) {]=]
  WITH [=[        for (Tensor& tensor : state.tensors) {
          tensor = Tensor::zeros_like(tensor);]=]
  RUN "--modes dp --devices 2 --model mlp:64-32-10 --steps 24 --interrupt"
  EXPECT "dp on 2 devices, resumed after step 8" "(first steps|drift): step (19|23)" "not rounding")

mutant(weights_of_a_checkpoint_one_step_old
  SOURCE tools/run/loop.cpp
  REPLACE [=[    Checkpoint checkpoint{.step = step_,]=]
  WITH [=[    Checkpoint checkpoint{.step = step_ - 1,]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 24 --interrupt"
  EXPECT "ddp on 2 devices")

# --- faults that one device shares: the verdict's own rules and differences of the loss tell

mutant(schedule_one_step_ahead
  SOURCE engine/optim/schedule.cpp
  REPLACE [=[  const double rate = rate_of(base, step);]=]
  WITH [=[  const double rate = rate_of(base, step + 1);]=]
  RUN "--schedule cosine --modes ddp --devices 2 --model mlp:64-32-10 --epochs 1"
  EXPECT "single on 1 device" "schedule: step 0" "parameter all" "the schedule says 0.1")

mutant(warm_up_from_zero
  SOURCE engine/optim/schedule.cpp
  REPLACE [=[base * (static_cast<double>(step + 1) / static_cast<double>(warmup_steps))]=]
  WITH [=[base * (static_cast<double>(step) / static_cast<double>(warmup_steps))]=]
  RUN "--warmup 4 --modes ddp --devices 2 --model mlp:64-32-10 --steps 8"
  EXPECT "single on 1 device" "schedule: step 0" "parameter all" "the schedule says 0.025")

mutant(order_of_every_epoch_the_same
  SOURCE engine/data/sampler.cpp
  REPLACE [=[return random_permutation(num_samples, seed + epoch);]=]
  WITH [=[return random_permutation(num_samples, seed);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 2"
  EXPECT "single on 1 device" "rows: step 24" "parameter all" "of the global batch")

mutant(shuffle_favours_some_orders
  SOURCE engine/core/rng.cpp
  REPLACE [=[rng.below(remaining)]);]=]
  WITH [=[rng.below(num_elements)]);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "rows: step 0" "parameter all" "of the global batch")

mutant(windows_of_every_epoch_the_same
  SOURCE engine/data/sampler.cpp
  REPLACE [=[Rng(seed + epoch, row).below(windows.num_starts)]=]
  WITH [=[Rng(seed, row).below(windows.num_starts)]=]
  RUN "--dataset embedded-text --model gpt:1-2-16-128 --modes ddp --devices 2 --epochs 2"
  EXPECT "single on 1 device" "rows: step [1-9]" "parameter all" "of the global batch")

mutant(momentum_is_dampened
  SOURCE engine/optim/optimizer.cpp
  REPLACE [=[  backend.sgd(stream, {updates, scalars, options});]=]
  WITH [=[  options.dampening = 0.1;
  backend.sgd(stream, {updates, scalars, options});]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "update: step 1" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(nesterov_takes_the_momentum_alone
  SOURCE kernels/cpu/optimizer.cpp
  REPLACE [=[(is_nesterov ? d + momentum * v[i] : v[i]);]=]
  WITH [=[(is_nesterov ? momentum * v[i] : v[i]);]=]
  RUN "--nesterov --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "update: step 0" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(second_moment_not_corrected
  SOURCE kernels/cpu/optimizer.cpp
  REPLACE [=[std::sqrt(1 - std::pow(call.options.beta2, t));]=]
  WITH [=[1 - std::pow(call.options.beta2, t);]=]
  RUN "--optimizer adamw --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "update: step 0" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(bias_corrected_by_the_steps_before
  SOURCE kernels/cpu/optimizer.cpp
  REPLACE [=[static_cast<double>(++*data_of<std::int64_t>(call.scalars.step));]=]
  WITH [=[std::max(1.0, static_cast<double>((*data_of<std::int64_t>(call.scalars.step))++));]=]
  RUN "--optimizer adamw --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "update: step 1" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(weight_decay_is_coupled
  SOURCE kernels/cpu/optimizer.cpp
  REPLACE [=[          const T g = grad[i];
          m[i]]=]
  WITH [=[          const T g = grad[i] + static_cast<T>(call.options.weight_decay) * w[i];
          m[i]]=]
  RUN "--optimizer adamw --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "update: step 0" "parameter [02]\\.(weight|bias)" "the optimizer's formula gives")

mutant(vectors_decay_everywhere
  SOURCE engine/optim/adamw.cpp
  REPLACE [=[parameter.shape().num_dims() >= 2;]=]
  WITH [=[parameter.shape().num_dims() >= 1;]=]
  RUN "--dataset embedded-text --model gpt:1-2-16-8 --optimizer adamw --modes ddp --devices 2 --steps 3"
  EXPECT "single on 1 device" "update: step 0" "ln_[12f]\\.weight" "the optimizer's formula gives")

mutant(clipped_by_the_squared_norm
  SOURCE kernels/cpu/reduction.cpp
  REPLACE [=[static_cast<T>(std::sqrt(total));]=]
  WITH [=[static_cast<T>(total);]=]
  RUN "--clip-norm 0.1 --modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "gradients: step 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(tied_gradient_counted_once
  SOURCE engine/autograd/variable.cpp
  REPLACE [=[    impl.grad.backend().axpy(impl.grad.stream(), {1.0, gradient.view(), impl.grad.view()});]=]
  WITH [=[]=]
  RUN "--dataset embedded-text --model gpt:2-2-32-16 --batch 8 --modes ddp --devices 2 --steps 3"
  EXPECT "single on 1 device" "differences: step 0" "parameter transformer\\.wte" "its gradient says")

mutant(bias_without_a_gradient
  SOURCE engine/autograd/ops/linear.cpp
  REPLACE [=[.grad_bias = view_or_none(grads[2])});]=]
  WITH [=[.grad_bias = view_or_none(grads[2])});
    if (grads[2].defined()) grads[2].fill(0);]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --steps 3"
  EXPECT "single on 1 device" "differences: step 0" "parameter [02]\\.bias" "its gradient says 0")

mutant(positions_count_twice
  SOURCE engine/autograd/ops/embedding.cpp
  REPLACE [=[used_rows(grads[1], grad_y.size(1))});]=]
  WITH [=[used_rows(grads[1], grad_y.size(1))});
    grads[1].add_(grads[1]);]=]
  RUN "--dataset embedded-text --model gpt:2-2-32-16 --batch 8 --modes ddp --devices 2 --steps 3"
  EXPECT "single on 1 device" "differences: step 0" "parameter transformer\\.wpe" "its gradient says")

mutant(average_pools_gradient_not_shared_out
  SOURCE kernels/cpu/pool.cpp
  REPLACE [=[const T* grad_y, T* grad_x) {
  const T factor = T(1) / static_cast<T>(w.kernel_height * w.kernel_width);]=]
  WITH [=[const T* grad_y, T* grad_x) {
  const T factor = T(1);]=]
  RUN "--modes ddp --devices 2 --model lenet --steps 3"
  EXPECT "single on 1 device" "differences: step 0" "parameter [03]\\.(weight|bias)" "its gradient says")
