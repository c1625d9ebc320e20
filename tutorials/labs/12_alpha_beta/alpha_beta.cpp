#include "alpha_beta.h"

#include "lab.h"

namespace lab {

double ring_seconds(int world_size, double num_bytes, const Link& link) {
  // SOLUTION begin: ring_seconds: 2 (n-1) steps, each with a latency and a part of num_bytes / n
  const double num_steps = 2.0 * (world_size - 1);
  return num_steps * (link.latency_seconds + num_bytes / world_size / link.bytes_per_second);
  // SOLUTION end
}

double naive_seconds(int world_size, double num_bytes, const Link& link) {
  // SOLUTION begin: naive_seconds: two phases, each with a latency and n-1 whole buffers at one
  // port
  const double port_seconds = (world_size - 1) * num_bytes / link.bytes_per_second;
  return 2 * (link.latency_seconds + port_seconds);
  // SOLUTION end
}

double break_even_bytes(int world_size, const Link& link) {
  // SOLUTION begin: break_even_bytes: solve ring_seconds = naive_seconds for num_bytes
  const double n = world_size;
  return link.latency_seconds * link.bytes_per_second * n * (n - 2) / ((n - 1) * (n - 1));
  // SOLUTION end
}

}  // namespace lab
