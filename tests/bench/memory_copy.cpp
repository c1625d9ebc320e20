// Measures the memory's bandwidth when threads copy, each within a buffer of its own, from one half
// to the other: the bytes that all of them read and write in a second.
//   memory_copy THREADS BYTES     BYTES of each thread; prints GB/s
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto num_threads = std::strtoul(argv[1], nullptr, 10);
  const auto half = std::strtoul(argv[2], nullptr, 10) / 2;
  constexpr int kRounds = 20;
  double least_seconds = 1e300;
  std::barrier meet(static_cast<std::ptrdiff_t>(num_threads));
  const auto copy = [&](std::size_t number) {
    std::vector<char> buffer(2 * half, 1);
    for (int round = 0; round < kRounds; ++round) {
      char* const from = buffer.data() + (round % 2 == 0 ? 0 : half);
      char* const to = buffer.data() + (round % 2 == 0 ? half : 0);
      meet.arrive_and_wait();
      const auto start = std::chrono::steady_clock::now();
      std::memcpy(to, from, half);
      meet.arrive_and_wait();
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      if (number == 0) least_seconds = std::min(least_seconds, spent.count());
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < num_threads; ++i) threads.emplace_back(copy, i);
  for (std::thread& thread : threads) thread.join();
  const double num_bytes = 2.0 * static_cast<double>(half * num_threads);
  std::printf("%.2f\n", num_bytes / least_seconds * 1e-9);
  return 0;
}
