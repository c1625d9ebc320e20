// Lab 12: how long an all-reduce takes, by arithmetic. README.md says what is to be done.
#pragma once

namespace lab {

// Between every two ranks. A message of B bytes leaves its sender's port in B / bytes_per_second
// and arrives latency_seconds after that. A port sends one message after the other, and receives
// one after the other; it sends and receives at the same time.
struct Link {
  double latency_seconds = 0;   // alpha
  double bytes_per_second = 0;  // 1 / beta
};

// The ring all-reduce (lab 06) of num_bytes on every rank: 2 (n - 1) steps, in each of which every
// rank sends one of n equal parts. n = world_size.
double ring_seconds(int world_size, double num_bytes, const Link& link);

// The naive all-reduce (lab 05): n - 1 whole buffers arrive at rank 0's port, then n - 1 leave it.
double naive_seconds(int world_size, double num_bytes, const Link& link);

// The size from which on the ring is faster: where both take as long. REQUIRES: world_size >= 3.
double break_even_bytes(int world_size, const Link& link);

}  // namespace lab
