// Plausible mistakes: each is a lab's solution with one text replaced.
#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

struct WrongSolution {
  std::string lab;   // "05_naive_all_reduce"
  std::string name;  // what is wrong: "average_instead_of_sum"
  std::string text;  // stands in the solution exactly once
  std::string with;
  std::string said{};  // among what the checks say of it
};

inline const std::vector<WrongSolution> kWrongSolutions = {
    {"01_linear_backward", "gradient_of_x_with_the_weight_transposed",
     "product(grad_y, Transpose::no, weight, Transpose::no)",
     "product(grad_y, Transpose::no, weight, Transpose::yes)"},
    {"01_linear_backward", "gradient_of_the_weight_turned",
     "product(grad_y, Transpose::yes, x, Transpose::no)",
     "product(x, Transpose::yes, grad_y, Transpose::no)",
     "shape of grad_weight: expected [2, 3], found [3, 2]"},
    {"01_linear_backward", "bias_of_the_last_row_only", "sums[j] += grad[i * columns + j];",
     "sums[j] = grad[i * columns + j];", "grad_bias, element 0: expected 101, found 100"},
    {"01_linear_backward", "gradient_of_x_added_up_between_calls",
     "return product(grad_y, Transpose::no, weight, Transpose::no);",
     "static Tensor total;\n    const Tensor grad = product(grad_y, Transpose::no, weight, "
     "Transpose::no);\n"
     "    if (total.defined() && total.shape() == grad.shape())\n"
     "      for (std::size_t i = 0; i < total.num_elements(); ++i)\n"
     "        grad.host<double>()[i] += total.host<const double>()[i];\n"
     "    total = grad;\n    return grad;"},
    {"02_cross_entropy", "softmax_without_the_maximum",
     "const double largest = *std::ranges::max_element(row);\n  std::vector<double> result;",
     "const double largest = 0;\n  std::vector<double> result;"},
    {"02_cross_entropy", "softmax_not_divided", "for (double& x : result) x /= sum;", ""},
    {"02_cross_entropy", "loss_summed_over_rows",
     "return loss / static_cast<double>(batch.labels.size());", "return loss;"},
    {"02_cross_entropy", "gradient_not_divided_by_rows",
     "const double factor = grad_loss / static_cast<double>(batch.labels.size());",
     "const double factor = grad_loss;"},
    {"02_cross_entropy", "gradient_without_the_chain_rule",
     "const double factor = grad_loss / static_cast<double>(batch.labels.size());",
     "const double factor = 1.0 / static_cast<double>(batch.labels.size());"},
    {"03_scatter_plan", "rounded_down", "(num_rows + num_devices - 1) / num_devices",
     "num_rows < num_devices ? 1 : num_rows / num_devices"},
    {"03_scatter_plan", "as_even_as_possible",
     "parts.push_back({offset, std::min(chunk, num_rows - offset)});",
     "(void)offset;\n  }\n  parts.clear();\n  for (std::size_t d = 0, begin = 0; d < "
     "num_devices; "
     "++d) {\n    const std::size_t size = num_rows / num_devices + (d < num_rows % "
     "num_devices);\n"
     "    parts.push_back({begin, size});\n    begin += size;"},
    {"03_scatter_plan", "offsets_begin_at_one", "parts.push_back({offset,",
     "parts.push_back({offset + 1,"},
    {"04_replicate_backward", "stops_at_an_unused_copy", "if (!grad.defined()) continue;",
     "if (!grad.defined()) break;"},
    {"04_replicate_backward", "last_copy_forgotten", "for (const Tensor& grad : grad_outputs) {",
     "for (const Tensor& grad : std::span(grad_outputs).first(grad_outputs.size() - 1)) {"},
    {"04_replicate_backward", "adds_into_another_nodes_gradient", "sum = here.clone();",
     "sum = here;"},
    {"04_replicate_backward", "adds_the_last_device_first",
     "for (const Tensor& grad : grad_outputs) {",
     "for (std::size_t d = grad_outputs.size(); d-- > 0;) {\n      const Tensor& grad = "
     "grad_outputs[d];"},
    {"05_naive_all_reduce", "sum_is_not_sent_back",
     "for (int peer = 1; peer < rank.world_size(); ++peer) rank.send(buffer, peer);",
     "for (int peer = 1; peer < 2 && peer < rank.world_size(); ++peer) rank.send(buffer, peer);"},
    {"05_naive_all_reduce", "first_rank_only",
     "for (int peer = 1; peer < rank.world_size(); ++peer) {",
     "for (int peer = 1; peer < 2; ++peer) {"},
    {"05_naive_all_reduce", "waits_for_itself",
     "for (int peer = 1; peer < rank.world_size(); ++peer) {",
     "for (int peer = 0; peer < rank.world_size(); ++peer) {"},
    {"05_naive_all_reduce", "everybody_sends_to_everybody", "  if (rank.rank() == 0) {",
     "  std::vector<double> own(buffer.begin(), buffer.end()), got(buffer.size());\n"
     "  for (int p = 0; p < rank.world_size(); ++p)\n    if (p != rank.rank()) rank.send(own, "
     "p);\n"
     "  for (int p = 0; p < rank.world_size(); ++p) {\n    if (p == rank.rank()) continue;\n"
     "    rank.recv(got, p);\n    for (std::size_t i = 0; i < got.size(); ++i) buffer[i] += "
     "got[i];\n"
     "  }\n  if (rank.world_size() > 0) return;\n"
     "  if (rank.rank() == 0) {"},
    {"06_ring_all_reduce", "overwrites_in_reduce_scatter", "mine[i] += received[i];",
     "mine[i] = received[i];"},
    {"06_ring_all_reduce", "gathers_the_wrong_part",
     "rank.recv(part_of(buffer, n, rank.rank() - 1 - step), left_of(rank));",
     "rank.recv(part_of(buffer, n, rank.rank() + 1 + step), left_of(rank));"},
    {"06_ring_all_reduce", "one_step_too_many",
     "for (int step = 0; step < n - 1; ++step) {\n    rank.send(part_of(buffer, n, rank.rank() - 1",
     "for (int step = 0; step < n; ++step) {\n    rank.send(part_of(buffer, n, rank.rank() - 1",
     "reduce_scatter: rank 0 sends 4 messages, expected n-1 = 3"},
    {"06_ring_all_reduce", "gathers_one_step_too_long",
     "for (int step = 0; step < n - 1; ++step) {\n    rank.send(part_of(buffer, n, rank.rank() - "
     "step)",
     "for (int step = 0; step < n; ++step) {\n    rank.send(part_of(buffer, n, rank.rank() - step)",
     "all_gather: rank 0 sends 4 messages, expected n-1 = 3"},
    {"06_ring_all_reduce", "sends_whole_buffers",
     "  reduce_scatter(rank, buffer);\n  all_gather(rank, buffer);",
     "  std::vector<double> passing(buffer.begin(), buffer.end());\n"
     "  for (int step = 0; step < rank.world_size() - 1; ++step) {\n"
     "    rank.send(passing, right_of(rank));\n    rank.recv(passing, left_of(rank));\n"
     "    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] += passing[i];\n  }"},
    {"06_ring_all_reduce", "parts_of_one_size", "std::vector<double> received(mine.size());",
     "std::vector<double> received(buffer.size() / static_cast<std::size_t>(n));"},
    {"07_ring_plan", "copies_where_it_should_add",
     "make_step(world_size, num_elements, plan::Combine::add,",
     "make_step(world_size, num_elements, plan::Combine::copy,"},
    {"07_ring_plan", "copies_the_wrong_part", "return rank - s; }));", "return rank + s; }));"},
    {"07_ring_plan", "to_everybody_at_once",
     "  if (world_size == 1 || num_elements == 0) return ring;",
     "  ring.steps.emplace_back();\n  for (int from = 0; from < world_size; ++from)\n"
     "    for (int to = 0; to < world_size; ++to)\n      if (from != to)\n"
     "        ring.steps[0].transfers.push_back({from, to, {0, num_elements}, "
     "plan::Combine::add});\n"
     "  return ring;"},
    {"07_ring_plan", "keeps_steps_that_move_nothing", "if (chunk.count == 0) continue;",
     "if (num_elements > 100000) continue;"},
    {"08_bucket_plan", "in_the_order_of_registration",
     "for (std::size_t p = num_bytes.size(); p-- > 0;) {",
     "for (std::size_t p = 0; p < num_bytes.size(); ++p) {", "enters bucket 0 out of turn"},
    {"08_bucket_plan", "closes_before_the_limit",
     "    open.push_back(p);\n    open_bytes += num_bytes[p];",
     "    if (!open.empty() && open_bytes + num_bytes[p] > byte_limits.back()) {\n"
     "      buckets.push_back(open);\n      open.clear();\n      open_bytes = 0;\n    }\n"
     "    open.push_back(p);\n    open_bytes += num_bytes[p];",
     "closes too early"},
    {"08_bucket_plan", "last_bucket_lost", "if (!open.empty()) buckets.push_back(open);", "",
     "in no bucket"},
    {"08_bucket_plan", "last_limit_for_all",
     "byte_limits[std::min(buckets.size(), byte_limits.size() - 1)]", "byte_limits.back()"},
    {"09_hook_order", "launched_at_the_first_gradient", "num_missing_[next_] == 0)",
     "num_missing_[next_] < buckets_[next_].size())"},
    {"09_hook_order", "one_launch_in_a_hook",
     "while (next_ < buckets_.size() && num_missing_[next_] == 0) launch_(next_++);",
     "if (next_ < buckets_.size() && num_missing_[next_] == 0) launch_(next_++);"},
    {"09_hook_order", "next_bucket_not_set_back",
     "num_missing_.push_back(bucket.size());\n  next_ = 0;",
     "num_missing_.push_back(bucket.size());\n  if (next_ > buckets_.size()) next_ = 0;"},
    {"09_hook_order", "finish_does_nothing",
     "while (next_ < buckets_.size()) launch_(next_++);\n  // SOLUTION end\n}\n\n}", "}\n\n}"},
    {"10_distributed_sampler", "shuffled_in_any_case", "epoch.shuffle == Shuffle::yes", "true"},
    {"10_distributed_sampler", "epoch_forgotten", "epoch.seed + epoch.epoch)", "epoch.seed)"},
    {"10_distributed_sampler", "blocks_instead_of_every_nth",
     "order[(rank + i * epoch.world_size) % order.size()]",
     "order[(rank * length + i) % order.size()]"},
    {"10_distributed_sampler", "no_padding", "rows.push_back(order",
     "if (rank + i * epoch.world_size < order.size()) rows.push_back(order"},
    {"10_distributed_sampler", "drop_last_ignored",
     "if (is_uneven && epoch.drop_last == DropLast::no) ++length;", "if (is_uneven) ++length;"},
    {"11_no_sync", "losses_not_weighed", "lockstep::scale(loss, weight).backward();",
     "loss.backward();\n  (void)weight;"},
    {"11_no_sync", "losses_summed", "1.0 / static_cast<double>(micro_batches.size())", "1.0"},
    {"11_no_sync", "every_pass_synchronised", "const auto no_sync = model.no_sync();", ""},
    {"11_no_sync", "no_pass_synchronised", "  {\n    const auto no_sync = model.no_sync();",
     "  const auto no_sync = model.no_sync();\n  {"},
    {"12_alpha_beta", "one_latency_for_the_whole_ring",
     "num_steps * (link.latency_seconds + num_bytes / world_size / link.bytes_per_second)",
     "link.latency_seconds + num_steps * num_bytes / world_size / link.bytes_per_second"},
    {"12_alpha_beta", "latency_of_every_naive_message", "2 * (link.latency_seconds + port_seconds)",
     "2 * ((world_size - 1) * link.latency_seconds + port_seconds)"},
    {"12_alpha_beta", "break_even_of_one_buffer",
     "link.latency_seconds * link.bytes_per_second * n * (n - 2) / ((n - 1) * (n - 1))",
     "link.latency_seconds * link.bytes_per_second"},
    {"13_fold_patches", "overwrites_instead_of_adding",
     "pixels[source] += copies[row * columns + column];",
     "pixels[source] = copies[row * columns + column];",
     "pixel (0, 1), channel 0, which is in 2 of the patches: expected 12, found 10; that is its "
     "last copy's alone"},
    {"13_fold_patches", "averages_the_copies", "  // SOLUTION end\n  return {grad_images};",
     "    std::vector<double> counts(pixels.size());\n"
     "    for (std::size_t k = 0; k < rows * columns; ++k)\n"
     "      if (const auto s = source_of(window, images, k / columns, k % columns); s != "
     "kPadding) "
     "++counts[s];\n"
     "    for (std::size_t k = 0; k < counts.size(); ++k) pixels[k] /= counts[k] ? counts[k] : "
     "1;\n"
     "  // SOLUTION end\n  return {grad_images};",
     "the mean of its copies' gradients"},
    {"13_fold_patches", "padding_not_subtracted", "oy * window.stride + i - window.padding;",
     "oy * window.stride + i;"},
    {"13_fold_patches", "stride_forgotten", "oy * window.stride + i - window.padding;",
     "oy + i - window.padding;", "pixel (1, 0), channel 0, which is in 1 of"},
    {"13_fold_patches", "window_on_its_side", "ox * window.stride + j - window.padding;\n",
     "ox * window.stride + i - window.padding;\n  (void)j;\n",
     "patch 0, element 1 shows image 0, pixel (0, 1)"},
    {"13_fold_patches", "first_image_only",
     "copies' gradients\n  for (std::size_t row = 0; row < rows; ++row) {",
     "copies' gradients\n  for (std::size_t row = 0; row < rows / images[0]; ++row) {",
     "gradient of image 1, pixel (0, "},
    {"14_attention_backward", "softmax_without_the_mean", "weights[s] * (grad_weights[s] - mean)",
     "weights[s] * (grad_weights[s] - 0 * mean)", "gradient of the scores, element 0"},
    {"14_attention_backward", "scores_not_scaled",
     "add(grad.q[t], scale_of(head) * grad_scores[s], head.k[s]);",
     "add(grad.q[t], grad_scores[s], head.k[s]);", "lacks the factor 1 / sqrt(size)"},
    {"14_attention_backward", "values_from_the_end", "add(grad.v[s], weights[s], grad_y[t]);",
     "add(grad.v[head.q.size() - 1 - s], weights[s], grad_y[t]);",
     "gradient of v, position 0 of 3"},
    {"14_attention_backward", "gradients_added_up_between_calls", "Head grad{zeros, zeros, zeros};",
     "static Head grad;\n  if (grad.q.size() != zeros.size() || grad.q[0].size() != "
     "zeros[0].size()) grad = {zeros, zeros, zeros};"},
    {"15_sharded_step", "forgets_its_own_values", "sum[i] += mine[i];", "sum[i] += 0 * mine[i];"},
    {"15_sharded_step", "sends_whole_buffers",
     "if (to != rank.rank()) rank.send(shard_of(buffer, n, to), to);",
     "if (to != rank.rank()) rank.send(shard_of(buffer, n, to), to);\n"
     "    if (to != rank.rank()) rank.send(buffer, to);"},
    {"15_sharded_step", "sends_after_receiving",
     "if (from != rank.rank()) rank.recv(shard_of(buffer, n, from), from);",
     "if (from == rank.rank()) continue;\n"
     "    rank.recv(shard_of(buffer, n, from), from);\n"
     "    rank.send(std::span<double>(), from);"},
    {"15_sharded_step", "gathers_in_the_wrong_place",
     "if (from != rank.rank()) rank.recv(shard_of(buffer, n, from), from);",
     "if (from != rank.rank()) rank.recv(shard_of(buffer, n, n - 1 - from), from);"},
    {"15_sharded_step", "shards_of_one_size", "std::vector<double> received(mine.size());",
     "std::vector<double> received(buffer.size() / static_cast<std::size_t>(n));"},
    {"15_sharded_step", "step_of_the_sum", "learning_rate * my_sum[i] / n;",
     "learning_rate * my_sum[i];"},
    {"16_pipeline_schedule", "as_gpipe", "std::min(num_stages - 1 - stage, num_micro_batches)",
     "num_micro_batches + 0 * stage * num_stages",
     "passes ahead by stage: expected [3, 2, 1, 0], found [8, 8, 8, 8]"},
    {"16_pipeline_schedule", "none_ahead", "std::min(num_stages - 1 - stage, num_micro_batches)",
     "0 * stage * num_stages", "done after 64 slots, expected 22"},
    {"16_pipeline_schedule", "more_ahead_than_there_are",
     "std::min(num_stages - 1 - stage, num_micro_batches)", "num_stages - 1 - stage"},
    {"16_pipeline_schedule", "last_micro_batch_never_goes_forward",
     "if (num_ahead + i < num_micro_batches)", "if (num_ahead + i + 1 < num_micro_batches)",
     "before F"},
    {"p1_data_parallel", "updates_with_the_own_gradient", "gpu.wait(gpu.all_reduce(layer));",
     "(void)layer;", "rank 0, update(5): updates layer 5 with the GPU's own gradient"},
    {"p1_data_parallel", "one_layer_is_not_updated", "layer >= 0; --layer) gpu.update(layer);",
     "layer >= 1; --layer) gpu.update(layer);", "rank 0 never updates layer 0"},
    {"p1_data_parallel", "all_train_on_the_same_rows", "gpu.backward(layer, gpu.rank());",
     "gpu.backward(layer, 0);", "the input that forward(5, 0) read is not there"},
    {"p2_overlap", "does_not_wait", "gpu.wait(behind);\n      gpu.update(layer + 1);",
     "gpu.update(layer + 1);", "before it waited for the sum of its gradient"},
    {"p2_overlap", "waits_at_once", "const Work work = gpu.all_reduce(layer);",
     "const Work work = gpu.all_reduce(layer);\n    gpu.wait(work);", "% more than the best known"},
    {"p2_overlap", "ranks_differ_in_order", "const Work work = gpu.all_reduce(layer);",
     "const Work work = gpu.all_reduce(gpu.rank() == 0 ? layer : last - layer);",
     "there is no gradient of layer 0"},
    {"p3_accumulation", "all_reduces_each_micro_batch", "if (i + 1 == num_own) works", "works",
     "adds to the gradient of layer 5 while it is being reduced"},
    {"p3_accumulation", "all_forward_first",
     "for (int layer = last; layer >= 0; --layer) {\n      gpu.backward(layer, micro_batch);",
     "}\n  for (int i = 0; i < num_own; ++i) {\n    const int micro_batch = gpu.rank() * num_own + "
     "i;\n    for (int layer = last; layer >= 0; --layer) {\n      gpu.backward(layer, "
     "micro_batch);",
     "MB, "},
    {"p3_accumulation", "reduces_twice", "works[layer] = gpu.all_reduce(layer);",
     "gpu.all_reduce(layer), works[layer] = gpu.all_reduce(layer);",
     "there is no gradient of layer 5"},
    {"p4_zero2", "frees_before_the_sum_is_there",
     "gpu.wait(reduce);\n    gpu.free_gradient(layer);", "gpu.free_gradient(layer);",
     "frees the gradient of layer 7 while it is being reduced"},
    {"p4_zero2", "keeps_whole_gradients", "gpu.free_gradient(layer);", "", "MB, "},
    {"p4_zero2", "does_not_gather", "gathers.push_back(gpu.all_gather(layer));", "",
     "rank 0 ends with old parameters of layer 0"},
    {"p5_zero3", "uses_before_it_gathers", "gpu.wait(gather);\n    if (layer < last) gather",
     "if (layer < last) gather", "before it waited for their all_gather"},
    {"p5_zero3", "frees_twice", "gpu.free_parameters(layer);\n    const Work reduce",
     "gpu.free_parameters(layer);\n    gpu.free_parameters(layer);\n    const Work reduce",
     "frees the parameters of layer 7, which are not gathered"},
    {"p5_zero3", "frees_unreduced_gradients", "const Work reduce = gpu.reduce_scatter(layer);",
     "gpu.free_gradient(layer);\n    const Work reduce = gpu.reduce_scatter(layer);",
     "frees the gradient of layer 7 before it was reduced"},
    {"p6_gpipe", "receives_in_another_order", "gpu.receive_gradient(last + 1, m, gpu.rank() + 1);",
     "gpu.receive_gradient(last + 1, gpu.num_micro_batches() - 1 - m, gpu.rank() + 1);",
     "the next message of rank 3 is that of its send_gradient(6, 0)"},
    {"p6_gpipe", "does_not_send", "gpu.send_activation(last + 1, m, gpu.rank() + 1);", "(void)m;",
     "GPUs wait for what never comes: rank 0 in receive_gradient(2, 0) for rank 1"},
    {"p6_gpipe", "all_load_all", "gpu.load(layer);", "for (int l = 0; l < 8; ++l) gpu.load(l);",
     "the GPU has loaded the layer before"},
    {"p7_1f1b", "goes_ahead_too_far", "std::min(gpu.world_size() - 1 - gpu.rank(), gpu",
     "std::min(2 * gpu.world_size(), gpu", "MB, "},
    {"p7_1f1b", "goes_ahead_too_little", "std::min(gpu.world_size() - 1 - gpu.rank(), gpu",
     "std::min(0, gpu", "ms, "},
    {"p7_1f1b", "forgets_a_micro_batch", "int m = 0; m < gpu.num_micro_batches(); ++m",
     "int m = 0; m + 1 < gpu.num_micro_batches(); ++m",
     "micro-batch 7 never goes back through layer 0"},
    {"p8_least_bubble", "one_chunk_after_the_other", "return k / p % num_chunks;",
     "return k / gpu.num_micro_batches();", ""},
    {"p8_least_bubble", "goes_ahead_by_everything", "std::min(total, 2", "std::max(total, 2",
     "MB, "},
    {"p8_least_bubble", "updates_twice", "if (m + 1 == gpu.num_micro_batches()) gpu.update(layer);",
     "gpu.update(layer);", "the GPU has updated layer"},
};

}  // namespace lockstep::testing
