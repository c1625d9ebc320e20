#include "tools/verdict/check_report.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/comm/communicator.h"

namespace lockstep::tools {
namespace {

std::vector<std::int64_t> to_words(const CheckReport& report) {
  const RowsReport& rows = report.rows;
  std::vector<std::int64_t> words{rows.offset, rows.num_rows, rows.num_global_rows, rows.wrong_row,
                                  rows.wrong_label};
  for (const auto* list : {&report.digests_before, &report.digests_after}) {
    for (const std::uint64_t digest : *list) words.push_back(std::bit_cast<std::int64_t>(digest));
  }
  for (const double error : report.gradient_errors) {
    words.push_back(std::bit_cast<std::int64_t>(error));
  }
  return words;
}

// The lists are as long as those of `like`.
CheckReport from_words(const std::int64_t* words, const CheckReport& like) {
  CheckReport report = like;
  report.rows = {words[0], words[1], words[2], words[3], words[4]};
  words += 5;
  for (auto* list : {&report.digests_before, &report.digests_after}) {
    for (std::uint64_t& digest : *list) digest = std::bit_cast<std::uint64_t>(*words++);
  }
  for (double& error : report.gradient_errors) error = std::bit_cast<double>(*words++);
  return report;
}

std::uint64_t digest(const std::vector<double>& values) {
  std::uint64_t hash = values.size();
  for (const double value : values) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

// Pixels were multiplied on the device, and may differ in the last bit.
bool is_same_row(const double* found, std::span<const std::uint8_t> bytes, double scale) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double expected = scale * bytes[i];
    if (!(std::abs(found[i] - expected) <= 1e-6 * expected)) return false;
  }
  return true;
}

}  // namespace

RowsReport report_rows(const TrainingTask& task, const data::Batch& batch,
                       const std::vector<std::size_t>& global_rows) {
  RowsReport report;
  report.offset = static_cast<std::int64_t>(batch.global_offset);
  report.num_rows = static_cast<std::int64_t>(batch.labels.num_elements());
  report.num_global_rows = static_cast<std::int64_t>(batch.num_global_rows);
  const data::LabelledRows& data = task.data->train;
  const std::vector<double> x = batch.x.to_vector<double>();
  const std::vector<std::int64_t> labels = batch.labels.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::size_t place = batch.global_offset + i;
    const std::size_t row = place < global_rows.size() ? global_rows[place] : global_rows.back();
    const bool has_label = labels[i] == data.labels[row];
    if (has_label && is_same_row(&x[i * data.num_features], data.row(row), data.scale)) continue;
    report.wrong_row = static_cast<std::int64_t>(i);
    report.wrong_label = !has_label;
    break;
  }
  return report;
}

std::vector<std::uint64_t> digests(const KeptTensors& tensors) {
  std::vector<std::uint64_t> all;
  for (const auto& [name, values] : tensors) all.push_back(digest(values));
  return all;
}

std::vector<CheckReport> exchange_reports(const std::vector<CheckReport>& mine,
                                          comm::Communicator* communicator) {
  if (!communicator) return mine;
  const std::vector<std::int64_t> words = to_words(mine[0]);
  const std::vector<std::int64_t> all = comm::gather_numbers(words, *communicator);
  std::vector<CheckReport> reports;
  for (std::size_t begin = 0; begin < all.size(); begin += words.size()) {
    reports.push_back(from_words(&all[begin], mine[0]));
  }
  return reports;
}

void share_from_rank_0(ReferenceGradient& reference, comm::Communicator* communicator) {
  if (!communicator || communicator->world_size() == 1) return;
  std::vector<Tensor> tensors;
  for (const std::vector<double>& values : reference.values) {
    tensors.push_back(Tensor::from(values, {values.size()}, Device{}));
  }
  tensors.push_back(Tensor::from(reference.sizes, {reference.sizes.size()}, Device{}));
  communicator->broadcast(tensors, 0).wait();
  reference.sizes = tensors.back().to_vector<double>();
  for (std::size_t p = 0; p < reference.values.size(); ++p) {
    reference.values[p] = tensors[p].to_vector<double>();
  }
}

std::vector<double> differences_from_rank_0(const std::vector<std::vector<double>>& mine,
                                            comm::Communicator* communicator) {
  std::vector<double> first = mine[0];
  if (communicator) {
    const Tensor shared = Tensor::from(first, {first.size()}, Device{});
    communicator->broadcast(shared, 0).wait();
    first = shared.to_vector<double>();
  }
  std::vector<std::int64_t> words;
  for (const std::vector<double>& values : mine) {
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(values[i] - first[i]);
      if (!(difference <= largest)) largest = difference;
    }
    words.push_back(std::bit_cast<std::int64_t>(largest));
  }
  if (communicator) words = comm::gather_numbers(words, *communicator);
  std::vector<double> differences;
  for (const std::int64_t word : words) differences.push_back(std::bit_cast<double>(word));
  return differences;
}

}  // namespace lockstep::tools
