// How the ranks of one host come to share a token that nobody gave them: rank 0 makes it, and hands
// it to every process of its user that asks for it under the job's port, over a Unix socket of
// Linux's abstract name space. The kernel says whose the process at the other end is. There is no
// file, so nothing is left behind, however the ranks end.
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "engine/comm/store/socket.h"

namespace lockstep::launch {

class TokenSocket {
 public:
  // Answers from a thread of its own, from here on.
  // Throws Error{Comm} when another process has taken the name.
  TokenSocket(int port, std::string token);
  ~TokenSocket();
  TokenSocket(const TokenSocket&) = delete;
  TokenSocket& operator=(const TokenSocket&) = delete;

 private:
  void answer_all();

  const std::string token_;
  comm::Socket listener_, wake_;
  std::thread thread_;
};

// The token of the job that meets at this port of this host; none while there is no such job.
// Throws Error{Comm} when a process of another user holds the name.
std::optional<std::string> ask_for_token(int port);

}  // namespace lockstep::launch
