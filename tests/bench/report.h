// The arguments and the output of both step benchmarks, so that their lines can be compared.
//
//   PROGRAM [--json] [--steps N] THREADS BATCH SIZE...    sizes of the layers, input first
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

struct StepBenchmark {
  int threads = 1;
  std::size_t batch = 64;
  std::vector<std::size_t> sizes;
  int steps = 40;
  enum class Format { text, json } format = Format::text;

  // Operations of one step: forward, both gradients of each layer, and no gradient of the input.
  double flops() const {
    double total = 0;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      const double products = i == 0 ? 4.0 : 6.0;
      total += products * static_cast<double>(batch * sizes[i] * sizes[i + 1]);
    }
    return total;
  }
};

// Exits with 2 and a line of usage for words it does not understand.
inline StepBenchmark parse_step_benchmark(int argc, char** argv) {
  StepBenchmark result;
  std::vector<long> numbers;
  bool valid = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      result.format = StepBenchmark::Format::json;
    } else if (word == "--steps" && i + 1 < argc) {
      result.steps = std::atoi(argv[++i]);
    } else {
      numbers.push_back(std::atol(argv[i]));
      valid = valid && numbers.back() > 0;
    }
  }
  if (!valid || numbers.size() < 4 || result.steps < 1) {
    std::fprintf(stderr, "usage: %s [--json] [--steps N] THREADS BATCH SIZE SIZE...\n", argv[0]);
    std::exit(2);
  }
  result.threads = static_cast<int>(numbers[0]);
  result.batch = static_cast<std::size_t>(numbers[1]);
  result.sizes.assign(numbers.begin() + 2, numbers.end());
  return result;
}

// Prints "threads batch median_us gflops" or one JSON object. seconds: one entry per step.
inline void report(const StepBenchmark& benchmark, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double gflops = benchmark.flops() / median / 1e9;
  if (benchmark.format == StepBenchmark::Format::json) {
    std::printf(
        "{\"threads\": %d, \"batch\": %zu, \"median_us\": %.2f, \"min_us\": %.2f, \"gflops\": "
        "%.1f}\n",
        benchmark.threads, benchmark.batch, median * 1e6, seconds.front() * 1e6, gflops);
  } else {
    std::printf("%d %zu %.1f %.1f\n", benchmark.threads, benchmark.batch, median * 1e6, gflops);
  }
}
