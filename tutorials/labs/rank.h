// One rank of a group, and the two things it can do: send a message to another rank, and receive
// one.
#pragma once

#include <span>

namespace lab {

class Rank {
 public:
  virtual ~Rank() = default;

  virtual int rank() const = 0;  // 0 ... world_size() - 1
  virtual int world_size() const = 0;

  // Sends a copy of the values, and does not wait for the receiver. Messages from one rank to
  // another arrive in the order in which they were sent.
  virtual void send(std::span<const double> values, int to) = 0;

  // Waits for the next message of rank `from`, and overwrites values with it.
  // Throws when the message has another size, and when every rank waits, so that none will come.
  virtual void recv(std::span<double> values, int from) = 0;
};

}  // namespace lab
