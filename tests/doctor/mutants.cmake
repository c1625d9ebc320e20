# Faults of data-parallel training, one text each, in programs that are right. The doctor has not seen them: what it
# finds is counted (count_mutants.sh), and at least nine of ten must be found.

# --- tests/doctor/example_ddp.cpp: Ddp, a data loader, micro-batches, a schedule, a checkpoint

mutant(every_rank_takes_the_first_shard example_ddp
  [=[sampling.rank = static_cast<std::size_t>(group.rank());]=]
  [=[sampling.rank = 0;]=])
mutant(sampler_of_one_rank example_ddp
  [=[sampling.world_size = static_cast<std::size_t>(group.world_size());
  sampling.rank = static_cast<std::size_t>(group.rank());]=]
  [=[]=])
mutant(a_seed_for_each_rank example_ddp
  [=[sampling.seed = 7;]=]
  [=[sampling.seed = 7 + static_cast<std::uint64_t>(group.rank());]=])
mutant(cut_for_more_ranks_than_there_are example_ddp
  [=[sampling.world_size = static_cast<std::size_t>(group.world_size());]=]
  [=[sampling.world_size = 4;]=])
mutant(epoch_zero_again example_ddp
  [=[return data::exact_batches(sampling, epoch);]=]
  [=[return data::exact_batches(sampling, 0 * epoch);]=])
mutant(mean_of_means example_ddp
  [=[return scale(cross_entropy(net(Variable(batch.x)), batch.labels), weight);]=]
  [=[return scale(cross_entropy(net(Variable(batch.x)), batch.labels), 0 * weight + 1);]=])
mutant(weight_without_the_number_of_ranks example_ddp
  [=[static_cast<double>(group.world_size()) /]=]
  [=[1.0 /]=])
mutant(sum_of_gradients_in_ddp example_ddp
  [=[parallel::Ddp net(model, group);]=]
  [=[parallel::DdpOptions summing;
  summing.reducer.op = comm::ReduceOp::sum;
  parallel::Ddp net(model, group, summing);]=])
mutant(last_micro_batch_unsynchronised example_ddp
  [=[const Variable last = weighted_loss(net, second ? *second : *first, group);]=]
  [=[std::optional<parallel::Ddp::NoSync> quiet;
      if (second) quiet.emplace(const_cast<parallel::GradReducer&>(net.reducer()));
      const Variable last = weighted_loss(net, second ? *second : *first, group);
      quiet.reset();]=])
mutant(gradients_pile_up example_ddp
  [=[sgd.zero_grad();]=]
  [=[if (step == 0) sgd.zero_grad();]=])
mutant(buffers_left_alone example_ddp
  [=[parallel::Ddp net(model, group);]=]
  [=[parallel::DdpOptions keeping;
  keeping.buffers = parallel::DdpOptions::Buffers::keep;
  parallel::Ddp net(model, group, keeping);]=])
mutant(weights_drawn_again_after_wrapping example_ddp
  [=[parallel::Ddp net(model, group);]=]
  [=[parallel::Ddp net(model, group);
  nn::load_state_dict(*model, nn::state_dict(*make_model(device, 40 + static_cast<std::uint64_t>(group.rank()))));]=])
mutant(model_moved_after_wrapping example_ddp
  [=[  train(net, group, device);
]=]
  [=[  model->to(Device{DeviceType::cpu, 20 + group.rank()});
  train(net, group, Device{DeviceType::cpu, 20 + group.rank()});
]=])
mutant(wrapped_in_two_wrappers example_ddp
  [=[parallel::Ddp net(model, group);]=]
  [=[parallel::Ddp net(std::make_shared<parallel::Ddp>(model, group), group);]=])
mutant(all_ranks_on_one_device example_ddp
  [=[const Device device{DeviceType::cpu, group.rank()};]=]
  [=[const Device device{DeviceType::cpu, 0};]=])
mutant(checkpoint_of_every_rank example_ddp
  [=[if (group.rank() == 0) nn::save_weights(path, *model);]=]
  [=[nn::save_weights(path, *model);]=])
mutant(checkpoint_with_a_prefix example_ddp
  [=[if (group.rank() == 0) nn::save_weights(path, *model);
  group.barrier();
  const auto resumed = make_model(device, /*seed=*/9);
  nn::load_state_dict(*resumed, nn::load_weights(path));]=]
  [=[if (group.rank() == 0) nn::save_weights(path, net);
  group.barrier();
  const auto resumed = make_model(device, /*seed=*/9);
  nn::load_state_dict(*resumed, nn::load_weights(path), nn::Strict::no);]=])
mutant(schedule_of_the_scheduled_rate example_ddp
  [=[schedule.learning_rate(kRate, step)]=]
  [=[schedule.learning_rate(sgd.learning_rate(), step)]=])
mutant(rate_by_rank example_ddp
  [=[schedule.learning_rate(kRate, step)]=]
  [=[schedule.learning_rate(kRate * (1 + group.rank()), step)]=])
mutant(optimizer_of_the_last_layer example_ddp
  [=[optim::Sgd sgd(net.parameters(),]=]
  [=[std::vector<Variable> some = net.parameters();
  some.erase(some.begin(), some.begin() + 4);
  optim::Sgd sgd(some,]=])
mutant(one_rank_stops_early example_ddp
  [=[while (const std::optional<data::Batch> first = loader->next()) {]=]
  [=[while (const std::optional<data::Batch> first = loader->next()) {
      if (group.rank() == 1 && step == 20) return;]=])
mutant(loss_of_one_rank_printed example_ddp
  [=[const double shown = mean_over_ranks(loss, group);]=]
  [=[const double shown = loss;]=])
mutant(loss_divided_by_the_ranks_too example_ddp
  [=[scale(last, second ? 0.5 : 1.0).backward();]=]
  [=[scale(last, (second ? 0.5 : 1.0) / kRanks).backward();]=])
mutant(labels_of_the_row_before example_ddp
  [=[return scale(cross_entropy(net(Variable(batch.x)), batch.labels), weight);]=]
  [=[std::vector<std::int64_t> labels = batch.labels.to_vector<std::int64_t>();
  if (group.rank() == 1) labels.insert(labels.begin(), labels.back()), labels.pop_back();
  return scale(cross_entropy(net(Variable(batch.x)), Tensor::from(labels, {labels.size()}, batch.x.device())),
               weight);]=])

# --- tests/doctor/example_by_hand.cpp: broadcast and all-reduce without a wrapper

mutant(no_broadcast example_by_hand
  [=[  broadcast_weights(*model, group);
]=]
  [=[]=])
mutant(broadcast_without_the_biases example_by_hand
  [=[for (const Variable& parameter : model.parameters()) group.broadcast(parameter.value(), 0);]=]
  [=[for (const Variable& parameter : model.parameters()) {
    if (parameter.shape().num_dims() == 2) group.broadcast(parameter.value(), 0);
  }]=])
mutant(sum_by_hand example_by_hand
  [=[{.op = comm::ReduceOp::average,]=]
  [=[{.op = comm::ReduceOp::sum,]=])
mutant(largest_by_hand example_by_hand
  [=[{.op = comm::ReduceOp::average,]=]
  [=[{.op = comm::ReduceOp::max,]=])
mutant(nobody_waits example_by_hand
  [=[for (const comm::Work& work : works) work.wait();]=]
  [=[]=])
mutant(copies_are_averaged example_by_hand
  [=[        parameter.grad(), {.op]=]
  [=[        parameter.grad().clone(), {.op]=])
mutant(averaged_after_the_step example_by_hand
  [=[      average_gradients(*model, group);
      adam.step();]=]
  [=[      adam.step();
      average_gradients(*model, group);]=])
mutant(averaged_now_and_then example_by_hand
  [=[      average_gradients(*model, group);
]=]
  [=[      if (step % 4 != 3) average_gradients(*model, group);
]=])
mutant(first_layer_forgotten example_by_hand
  [=[for (const Variable& parameter : model.parameters()) {
    works]=]
  [=[for (const Variable& parameter : model.parameters()) {
    if (parameter.shape() == Shape{24, 64}) continue;
    works]=])
mutant(rank_zero_leaves_a_parameter_out example_by_hand
  [=[for (const Variable& parameter : model.parameters()) {
    works]=]
  [=[for (const Variable& parameter : model.parameters()) {
    if (group.rank() == 0 && parameter.shape() == Shape{10}) continue;
    works]=])
mutant(weight_decay_of_one_rank example_by_hand
  [=[{.learning_rate = 0.01});]=]
  [=[{.learning_rate = 0.01, .weight_decay = group.rank() == 2 ? 0.1 : 0.01});]=])
mutant(one_rank_has_another_batch_size example_by_hand
  [=[const std::size_t rows = 25, num_steps]=]
  [=[const std::size_t rows = group.rank() == 3 ? 24 : 25, num_steps]=])

# --- the tutorials

mutant(tutorial_shuffles_once 03_train_model
  [=[    for (const data::Batch& batch : loader) {]=]
  [=[    loader.start_epoch(0);
    for (const data::Batch& batch : loader) {]=])
mutant(tutorial_never_clears_gradients 05_wrap_model
  [=[    sgd.zero_grad();
]=]
  [=[]=])
mutant(tutorial_begins_with_weights_of_its_own 06_train_replicas
  [=[if (without != "broadcast") broadcast_weights(ranks, *model);]=]
  [=[]=])
mutant(tutorial_averages_too_late 06_train_replicas
  [=[      if (without != "average") average_gradients(ranks, *model);
      optimizer.step();]=]
  [=[      optimizer.step();
      average_gradients(ranks, *model);]=])
mutant(tutorial_gives_two_ranks_the_same_rows 16_train_processes
  [=[weighted_loss(net, digits.batch(step, kBatch), place).backward();
      sgd.step();]=]
  [=[weighted_loss(net, digits.batch(step, kBatch), {place.rank / 2, place.num_ranks, place.device}).backward();
      sgd.step();]=])
mutant(tutorial_has_ranks_end_at_different_times 16_train_processes
  [=[const Rows shown = digits.part(0, kBatch);]=]
  [=[const Rows shown = digits.part(place.rank * 60, place.rank * 60 + 8);]=])
mutant(tutorial_has_a_momentum_for_each_rank 16_train_processes
  [=[{.learning_rate = 0.05, .momentum = 0.9});]=]
  [=[{.learning_rate = 0.05, .momentum = place.rank == 1 ? 0.5 : 0.9});]=])
