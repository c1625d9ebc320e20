#include "tests/hostile/files/readers.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "datasets/csv.h"
#include "datasets/dataset.h"
#include "datasets/idx.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/core/error.h"
#include "engine/launch/error_file.h"
#include "engine/nn/state_dict.h"
#include "engine/predict/all_reduce_cost.h"
#include "engine/predict/kernel_cost.h"
#include "tests/datasets/idx_files.h"
#include "tests/hostile/files/run_readers.h"
#include "tests/support/temp_folder.h"
#include "tools/prediction/published_all_reduce.h"
#include "tools/prediction/published_scaling.h"
#include "tools/report/flags_json.h"
#include "tools/report/row_file.h"

namespace lockstep::testing {
namespace {

using datasets::gzip_bytes;
using datasets::idx_bytes;

void read_safetensors_file(const std::filesystem::path& path) {
  const checkpoint::ArrayFile file = checkpoint::read_safetensors(path);
  for (const checkpoint::NamedArray& array : file.arrays) {
    expect(array.bytes.size() == array.shape.num_elements() * size_of(array.dtype),
           "an array's bytes and shape do not fit");
    expect(file.find(array.name) == &array, "two arrays have one name");
  }
}

std::vector<std::string> safetensors_files() {
  const TempFolder folder;
  const std::vector<std::byte> bytes(24, std::byte{0x3f});
  const std::vector<checkpoint::NamedArray> arrays = {{"0.weight", DType::float32, {2, 3}, bytes},
                                                      {"0.bias", DType::float64, {3}, bytes},
                                                      {"labels", DType::int64, {3, 1}, bytes},
                                                      {"pixels", DType::uint8, {2, 3, 4}, bytes},
                                                      {"empty", DType::float16, {0, 4}, {}}};
  checkpoint::write_safetensors(folder / "arrays", arrays, {{"format", "pt"}, {"step", "20"}});
  checkpoint::write_safetensors(folder / "none", std::vector<checkpoint::NamedArray>{});
  return {read_text(folder / "arrays"), read_text(folder / "none")};
}

void read_idx_file(const std::filesystem::path& path) {
  const datasets::IdxArray array = datasets::read_idx(path);
  expect(array.elements.size() == array.shape.num_elements(), "elements and shape do not fit");
}

const std::string kPixels = "\x01\x02 the pixels of seven images: \xff";

std::vector<std::string> idx_files() {
  return {idx_bytes({28}, kPixels.substr(0, 28)), idx_bytes({7, 2, 2}, kPixels.substr(0, 28))};
}

std::vector<std::string> idx_gz_files() {
  const std::string images = idx_bytes({100, 10, 10}, std::string(10'000, '\x10'));
  const std::string two_members = gzip_bytes(images.substr(0, 99)) + gzip_bytes(images.substr(99));
  return {gzip_bytes(idx_files()[0]), gzip_bytes(images), two_members};
}

void read_csv_file(const std::filesystem::path& path) {
  const datasets::CsvRows rows = datasets::read_csv(path);
  expect(rows.num_rows() > 0 && rows.features.size() == rows.num_rows() * rows.num_features,
         "rows and features do not fit");
  for (const float value : rows.features) expect(std::isfinite(value), "a feature is not finite");
  for (const std::int64_t label : rows.labels) expect(label >= 0, "a label is negative");
}

std::vector<std::string> csv_files() {
  return {"width,height,class\n1.5,2,0\n-2e3,0.25,1\n\n3,4,2\r\n", "1,2,3\n4,5,6"};
}

std::vector<std::string> csv_gz_files() {
  std::string rows;
  for (int i = 0; i < 1'000; ++i) rows += "0.5,1,-2,3\n";
  return {gzip_bytes(csv_files()[0]), gzip_bytes(rows)};
}

// The four files of MNIST, of which one is damaged: the training images.
void read_mnist_folder(const std::filesystem::path& path) {
  const TempFolder folder;
  std::filesystem::create_symlink(std::filesystem::absolute(path),
                                  folder / "train-images-idx3-ubyte");
  write_text(folder / "train-labels-idx1-ubyte", idx_bytes({2}, "\x01\x02"));
  write_text(folder / "t10k-images-idx3-ubyte", idx_bytes({1, 2, 2}, "abcd"));
  write_text(folder / "t10k-labels-idx1-ubyte", idx_bytes({1}, "\x03"));
  try {
    const auto data = datasets::load_dataset(datasets::parse_dataset("mnist"), folder.path(), 0);
    expect(data.train.num_rows() == 2 && data.train.features.size() == 8, "rows are missing");
  } catch (const Error& error) {
    // The name that the user gave is the link's.
    std::string message = error.what();
    const std::string link = (folder / "train-images-idx3-ubyte").string();
    const std::size_t place = message.find(link);
    expect(place != std::string::npos, "the message does not name the file");
    message.replace(place, link.size(), path.string());
    throw Error(error.code(), "mnist", message);
  }
}

std::vector<std::string> mnist_files() {
  const std::string images = idx_bytes({2, 2, 2}, "efghijkl");
  return {images, gzip_bytes(images)};
}

void read_weights(const std::filesystem::path& path) {
  for (const auto& [name, tensor] : nn::load_weights(path)) {
    expect(tensor.num_bytes() == tensor.num_elements() * size_of(tensor.dtype()),
           "bytes and shape");
  }
}

void read_row_file(const std::filesystem::path& path) {
  const tools::RunRow row = tools::read_row(path);
  expect(!row.placement.devices.empty(), "a row without devices");
}

std::vector<std::string> row_files() {
  const TempFolder folder;
  tools::RunRow row;
  row.placement = {tools::Mode::ddp, {Device{}, Device{DeviceType::cpu, 1}}, 2};
  row.result.epoch_seconds = {0.5, 0.25};
  row.result.breakdown.emplace();
  row.result.comm_overlap = {0.25, std::nullopt};
  row.result.peak_bytes = {7, 8};
  row.result.num_steps = 9;
  tools::write_row(folder / "row", row);
  return {read_text(folder / "row")};
}

void read_flags_file(const std::filesystem::path& path) {
  const tools::TrainingFlags flags = tools::read_flags(path);
  expect(flags.said.empty() && flags.row_folder.empty(), "flags that no file has");
}

std::vector<std::string> flags_files() {
  const TempFolder folder;
  tools::TrainingFlags flags;
  tools::write_flags(folder / "defaults", flags);
  flags.devices = 2;
  flags.learning_rate = 0.05;
  flags.link = "50us,1GB/s";
  flags.seed = 18446744073709551615U;
  tools::write_flags(folder / "said", flags);
  return {read_text(folder / "defaults"), read_text(folder / "said")};
}

// Never refuses: a rank's last words are shown, or not.
void read_error_message(const std::filesystem::path& path) {
  const std::string message = launch::read_error_file(path);
  expect(message.find('\n') == std::string::npos, "more than one line");
}

std::vector<std::string> error_files() {
  return {R"({"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "17"}}})",
          R"({"message": "it failed"})"};
}

void read_topology_file(const std::filesystem::path& path) {
  const predict::Topology topology = predict::find_topology(path.string());
  expect(!topology.gpus.empty(), "a topology without GPUs");
  for (const predict::Link& link : topology.links) {
    expect(link.bytes_per_second > 0 && link.a != link.b, "a link that joins nothing");
  }
  if (!topology.device.measured) return;
  const double seconds = predict::forward_seconds(topology.device, {100, 20, 30});
  expect(seconds > 0 && std::isfinite(seconds), "a layer that takes no time, or for ever");
  predict::Network network(topology);
  for (const predict::MeasuredAllReduce& measured : topology.device.measured->all_reduces) {
    predict::AllReduceCost cost(network, measured.num_devices, std::nullopt, measured.ranks);
    expect(std::isfinite(cost.seconds(4096)), "an all-reduce that takes for ever");
  }
}

std::vector<std::string> topology_files() {
  return {R"({"schema": "lockstep.topology/1", "name": "two", "source": "a test",
  "device": {"name": "GPU", "tflops": 10, "memory_gb_per_s": 500, "memory_gb": 12},
  "host": {"gb_per_s": 50, "thread_gb_per_s": 9},
  "nodes": [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}, {"name": "c", "kind": "cpu"}],
  "links": [{"from": "a", "to": "c", "kind": "pcie", "gb_per_s": 12},
            {"from": "b", "to": "c", "kind": "pcie", "gb_per_s": 12, "latency_us": 2}]})",
          R"({"schema": "lockstep.topology/1", "name": "here", "source": "calibrate",
  "device": {"name": "CPU, 1 thread", "tflops": 0.1, "memory_gb_per_s": 10, "memory_gb": 8},
  "host": {"gb_per_s": 50, "thread_gb_per_s": 9},
  "nodes": [{"name": "a", "kind": "device"}, {"name": "b", "kind": "device"}, {"name": "c", "kind": "cpu"}],
  "links": [{"from": "a", "to": "c", "kind": "memory", "gb_per_s": 12},
            {"from": "b", "to": "c", "kind": "memory", "gb_per_s": 12, "latency_us": 2}],
  "measured": {"threads_per_device": 1,
    "layers": {"rows": [8, 16], "inputs": [64], "outputs": [64], "forward_us": [10, 18],
               "backward_us": [20, 36], "weights_backward_us": [11, 19]},
    "traffic": [{"devices": 1, "bytes": [1000, 8000], "us": [1, 7]},
                {"devices": 2, "bytes": [1000, 8000], "us": [1, 9]}],
    "batch": {"bytes": [1000], "us": [2]},
    "loss": {"bytes": [100, 400], "forward_us": [1, 3], "backward_us": [1, 2]},
    "layers_beside": [1, 1.5], "overlap": {"compute": 0.5, "comm": 0.25},
    "deviation": 0.01,
    "all_reduces": [{"ranks": "threads", "devices": 2, "bytes": [1024, 16384], "us": [30, 200]}]}})"};
}

void read_published_table(const std::filesystem::path& path) {
  const tools::CsvTable table(path.string());
  if (table.has_column("algorithm")) {
    tools::predict_all_reduces(table);
    return;
  }
  tools::predict_scaling(table, {{"vgg", 138e6, 553e6, 15.5e9}, {"mlp 8-4", 36, 144, 72}});
}

std::vector<std::string> published_tables() {
  return {
      "set,hardware,interconnect,model,strategy,batch_per_gpu,gpus,value,unit\n"
      "A,TITAN X,PCIe3,vgg,single,96,1,14545,epoch_seconds\n"
      "A,TITAN X,PCIe3,vgg,cpu_reduce,48,2,19692,epoch_seconds\n",
      "hardware,interconnect,algorithm,gpus,bytes,value,unit\n"
      "H200 HGX,NVSwitch,nccl default,8,1048576,39.9,busbw_GBps\n"
      "H200 HGX,NVSwitch,nccl default,8,4194304,107,busbw_GBps\n"};
}

void read_published_models(const std::filesystem::path& path) {
  for (const tools::PublishedModel& model : tools::read_models(path.string())) {
    expect(model.parameters > 0 && model.gradient_bytes > 0, "a model without parameters");
  }
}

std::vector<std::string> model_tables() {
  return {
      "model,parameters,gradient_MB,forward_GFLOP_per_sample\nvgg,138357544,553,15.5\n"
      "\"mlp, small\",36,0.000144,0.000000072\n"};
}

constexpr FileReader kReaders[] = {
    {"safetensors", read_safetensors_file, safetensors_files},
    {"weights", read_weights, safetensors_files},
    {"idx", read_idx_file, idx_files},
    {"idx_gz", read_idx_file, idx_gz_files},
    {"mnist", read_mnist_folder, mnist_files},
    {"csv", read_csv_file, csv_files},
    {"csv_gz", read_csv_file, csv_gz_files},
    {"row", read_row_file, row_files},
    {"flags", read_flags_file, flags_files},
    {"error_file", read_error_message, error_files},
    {"topology", read_topology_file, topology_files},
    {"run_workload", read_workload_file, workload_files},
    {"run_file", read_run, run_files},
    {"loss_log", read_loss_log, loss_logs},
    {"step_timeline", read_timeline, timelines},
    {"published_table", read_published_table, published_tables},
    {"published_models", read_published_models, model_tables},
};

}  // namespace

std::span<const FileReader> file_readers() {
  return kReaders;
}

const FileReader& file_reader(std::string_view name) {
  for (const FileReader& reader : kReaders) {
    if (reader.name == name) return reader;
  }
  throw std::invalid_argument("no reader is called " + std::string(name));
}

bool survives(const FileReader& reader, const std::filesystem::path& path) {
  constexpr std::size_t kMaxMessageBytes = 1'000;
  try {
    reader.read(path);
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    expect(error.code() == ErrorCode::Io, "the error is not of a file");
    expect(message.find(path.string()) != std::string::npos, "the message does not name the file");
    expect(message.find('\n') == std::string::npos && message.find('\0') == std::string::npos,
           "the message is not one line");
    expect(message.size() <= kMaxMessageBytes + 3 * path.string().size(), "the message is long");
    return false;
  }
}

}  // namespace lockstep::testing
