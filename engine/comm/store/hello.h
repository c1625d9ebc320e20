// Messages between processes of a job: those of the store, and the hello with which a process
// begins every connection, to the store or to another rank.
//
// The hello states the purpose of the connection, the job's token and the process's rank. The
// listening end compares purpose and token before it reads anything else, and silently closes a
// connection with a wrong hello. The token and everything after it travel in clear text: the token
// keeps jobs and users apart on networks whose other users cannot read or alter the traffic
// (docs/processes.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/store/socket.h"
#include "engine/comm/store/store.h"

namespace lockstep::comm {

// --- who a process is, which tells which processes can share memory ---

// A line that two processes share exactly if they run under one kernel as the same user and see
// each other: the boot's id, the user, and the network and PID namespaces. So containers and
// network namespaces count as separate hosts. The host name comes first, for messages: "node7
// 5d8c... user 1000 net 4026531840 pid 4026531836".
std::string host_identity();

// The host name in such a line.
std::string host_name_of(const std::string& identity);

// "process 1234 on node7".
std::string name_of_this_process();

// --- messages ---

// Throws Error{Usage} unless the token has 16 ... 256 bytes; the error names `what`.
void require_token(std::string_view token, std::string_view what = "hello");

// Each text of a message travels as its size (u32, little-endian) and its bytes, and so does the
// whole message.
std::string encode(const Message& message);
// The message in the bytes after the whole's size; empty if they are not one.
std::optional<Message> decode_message(std::string_view bytes);

IoResult send_message(const Socket& connection, const Message& message, runtime::Deadline deadline);
// Bytes that are not a message count as closed, and so does a size above max_bytes, for which no
// memory is taken.
IoResult receive_message(const Socket& connection, std::size_t max_bytes, Message& message,
                         runtime::Deadline deadline);

struct Hello {
  std::string purpose;       // "store", "tcp/GROUP": other protocols and groups are strangers
  std::string token;         // the job's token
  int rank = -1;             // the rank that connects; -1: none
  std::string process = {};  // its name, for the errors of others that claim this rank
};

Message to_message(const Hello& hello);
// The hello in a message, if its purpose and token are those of `expected`.
std::optional<Hello> to_hello(const Message& message, const Hello& expected);

// Waits a bounded time for the hello. Ends a connection without a valid one: shuts it down if the
// hello is wrong; resets it if none came, which tells the other end that it may try again.
std::optional<Hello> receive_hello(const Socket& connection, const Hello& expected,
                                   runtime::Deadline deadline);

}  // namespace lockstep::comm
