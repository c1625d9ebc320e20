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
  SOURCE engine/comm/thread_group.cpp
  REPLACE [=[plan::even_chunk(num_elements, buffers.size(), mine);]=]
  WITH [=[plan::even_chunk(num_elements - std::min<std::size_t>(num_elements, 16), buffers.size(), mine);]=]
  RUN "--modes ddp --devices 4 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 4 devices" "gradients: step 0" "rank [0-3]" "parameter [02]\\.(weight|bias)" "relative error")

# --- DistributedDataParallel

mutant(rank_keeps_its_own_weights
  SOURCE engine/parallel/ddp/ddp.cpp
  REPLACE [=[  broadcast_from_rank_0(state, communicator);]=]
  WITH [=[  for (const Tensor& tensor : state) tensor.fill(communicator.rank() == 1 ? 0.01 : 0.02);]=]
  RUN "--modes ddp --devices 3 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 3 devices" "replicas: step 0" "rank 1" "parameter 0\\.weight" "before the step" "by 0\\.01")

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
  EXPECT "ddp on 2 devices" "(replicas|first steps|gradients): step [0-9]+" "rank [01]" "parameter [024]\\.(weight|bias)")

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
  EXPECT "ddp on 3 devices" "replicas: step 23" "rank 1" "parameter 0\\.weight" "before the step")

mutant(bitwise_adds_in_another_order
  SOURCE engine/parallel/bitwise/micro_shards.cpp
  REPLACE [=[options.plan = plan::AllReducePlan::halving_doubling;]=]
  WITH [=[options.plan = plan::AllReducePlan::two_shot;]=]
  RUN "--bitwise --modes ddp --devices 4 --model mlp:64-32-10 --steps 5"
  EXPECT "ddp on 4 devices" "first steps: step 4" "rank 0" "parameter [02]\\.(weight|bias)" "limit 0")

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
  WITH [=[if (!grad.defined() || k + num_inputs() >= grad_outputs.size()) continue;]=]
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
  EXPECT "dp on 2 devices" "gradients: step 23" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

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
  EXPECT "ddp on 3 devices" "rows: step 0" "rank 1" "parameter [02]\\.(weight|bias)" "begins at row 0")

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
  EXPECT "rows: step 25" "rank 0" "parameter [02]\\.(weight|bias)" "label")

mutant(smaller_batch_scaled_as_a_full_one
  SOURCE tools/training/gradients.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? static_cast<double>(num_ranks) / static_cast<double>(task.batch)]=]
  RUN "--modes ddp --devices 2 --model mlp:64-32-10 --epochs 1"
  EXPECT "gradients: step 23" "rank 0" "parameter [02]\\.(weight|bias)" "relative error")

mutant(mean_over_a_rank_taken_for_the_mean_over_all
  SOURCE tools/training/gradients.cpp
  REPLACE [=[? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)]=]
  WITH [=[? 1.0 / static_cast<double>(batch.labels.num_elements())]=]
  RUN "--modes ddp --devices 4 --batch 62 --model mlp:64-32-10 --steps 3"
  EXPECT "ddp on 4 devices" "gradients: step 0" "rank [0-3]" "parameter [02]\\.(weight|bias)" "relative error")
