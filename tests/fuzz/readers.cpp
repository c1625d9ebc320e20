#include "tests/fuzz/readers.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "datasets/csv.h"
#include "datasets/dataset.h"
#include "datasets/idx.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/core/error.h"
#include "engine/nn/state_dict.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/kernel_cost.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/temp_folder.h"
#include "tools/show/explain.h"
#include "tools/show/page.h"
#include "tools/show/step_timeline.h"
#include "tools/whatif/run_workload.h"

namespace lockstep::testing {
namespace {

using datasets::gzip_bytes;
using datasets::idx_bytes;

// Throws std::logic_error.
void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

void read_safetensors_file(const std::filesystem::path& path) {
  const checkpoint::ArrayFile file = checkpoint::read_safetensors(path);
  for (const checkpoint::NamedArray& array : file.arrays) {
    expect(array.bytes.size() == array.shape.num_elements() * size_of(array.dtype),
           "an array's bytes and shape do not fit");
    expect(file.find(array.name) == &array, "two arrays have one name");
  }
}

void read_idx_file(const std::filesystem::path& path) {
  const datasets::IdxArray array = datasets::read_idx(path);
  expect(array.elements.size() == array.shape.num_elements(), "elements and shape do not fit");
}

void read_csv_file(const std::filesystem::path& path) {
  const datasets::CsvRows rows = datasets::read_csv(path);
  expect(rows.num_rows() > 0 && rows.features.size() == rows.num_rows() * rows.num_features,
         "rows and features do not fit");
  for (const float value : rows.features) expect(std::isfinite(value), "a feature is not finite");
  for (const std::int64_t label : rows.labels) expect(label >= 0, "a label is negative");
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

void read_weights(const std::filesystem::path& path) {
  for (const auto& [name, tensor] : nn::load_weights(path)) {
    expect(tensor.num_bytes() == tensor.num_elements() * size_of(tensor.dtype()),
           "bytes and shape");
  }
}

void read_topology_file(const std::filesystem::path& path) {
  const predict::Topology topology = predict::find_topology(path.string());
  expect(!topology.gpus.empty(), "a topology without GPUs");
  for (const predict::Link& link : topology.links) {
    expect(link.bytes_per_second > 0 && link.a != link.b, "a link that joins nothing");
  }
}

// The page is whole, and its JSON is.
void expect_drawable(const std::vector<tools::page::PageRun>& runs) {
  const std::string page = tools::page::make_page(runs, "/* charts */");
  expect(page.ends_with("</html>\n"), "the page does not end");
  const std::string begin = "type=\"application/json\">";
  const std::size_t at = page.find(begin) + begin.size();
  expect(nlohmann::json::accept(page.substr(at, page.find("</script>", at) - at)),
         "the page's script has nothing to read");
}

void read_run(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file = tools::read_run_file(path, "explain");
  tools::page::name_runs(runs);
  expect(!tools::explain(runs[0].file).empty(), "nothing is said of a run");
  expect_drawable(runs);
  runs.push_back(runs[0]);
  expect_drawable(runs);
  if (!runs[0].file.workload) return;
  const tools::RunWorkload run = tools::read_run_workload(path.string());
  expect(!run.step.layers.empty() && run.rows_per_epoch > 0, "a workload without work");
}

void read_timeline(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file.json = std::make_shared<nlohmann::json>(nlohmann::json::object());
  runs[0].file.rows.emplace_back().step_seconds = 1;
  runs[0].timeline = tools::page::read_step_timeline(path, "report");
  const nlohmann::ordered_json& timeline = runs[0].timeline;
  const double seconds = timeline["seconds"];
  expect(seconds > 0 && std::isfinite(seconds), "a step takes no time");
  for (const auto& rank : timeline["ranks"]) {
    for (const auto& lane : rank["lanes"]) {
      for (const auto& span : lane["spans"]) {
        expect(span[0] >= 0 && span[0] <= span[1] && span[1] <= seconds,
               "a span lies outside of its step");
      }
    }
  }
  expect_drawable(runs);
}

constexpr FileReader kReaders[] = {
    {"safetensors", read_safetensors_file},
    {"weights", read_weights},
    {"idx", read_idx_file},
    {"mnist", read_mnist_folder},
    {"csv", read_csv_file},
    {"topology", read_topology_file},
    {"run_file", read_run},
    {"step_timeline", read_timeline},
};

}  // namespace

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
