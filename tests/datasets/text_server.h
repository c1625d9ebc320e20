// An HTTP server on this host's loopback whose files all hold one text, for tests of downloads.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep::datasets {

// served: a client may ask for the rest of a file ("Range: bytes=1000-").
enum class Ranges { served, ignored };

class TextServer {
 public:
  // Answers GET of whatever is in the folder ("/mnist/") with text, and everything else with 404.
  TextServer(std::string folder, std::string text, Ranges ranges = Ranges::served)
      : folder_(std::move(folder)), text_(std::move(text)), ranges_(ranges) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (::bind(listener_, any, size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, any, &size) != 0) {
      throw std::runtime_error("cannot listen on the loopback");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TextServer() {
    ::shutdown(listener_, SHUT_RDWR);  // accept() ends
    thread_.join();
    ::close(listener_);
  }
  TextServer(const TextServer&) = delete;
  TextServer& operator=(const TextServer&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::size_t num_requests() const { return num_requests_; }
  // Bytes of the text in all answers so far.
  std::size_t num_bytes_sent() const { return num_bytes_sent_; }

 private:
  void serve() {
    for (int client = 0; (client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;
         ::close(client)) {
      std::string request;
      char bytes[1024];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = ::recv(client, bytes, sizeof bytes, 0);
        if (count <= 0) break;
        request.append(bytes, static_cast<std::size_t>(count));
      }
      ++num_requests_;
      send_all(client, answer_to(request));
    }
  }

  std::string answer_to(const std::string& request) {
    if (!request.starts_with("GET " + folder_)) return head("404 Not Found", 0, "");
    const std::size_t range = request.find("Range: bytes=");
    if (ranges_ == Ranges::ignored || range == std::string::npos) return whole();
    const std::size_t begin = std::strtoull(request.c_str() + range + 13, nullptr, 10);
    if (begin >= text_.size()) {
      return head("416 Range Not Satisfiable", 0,
                  fmt::format("Content-Range: bytes */{}\r\n", text_.size()));
    }
    num_bytes_sent_ += text_.size() - begin;
    return head("206 Partial Content", text_.size() - begin,
                fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, text_.size() - 1,
                            text_.size())) +
           text_.substr(begin);
  }

  std::string whole() {
    num_bytes_sent_ += text_.size();
    return head("200 OK", text_.size(), "") + text_;
  }

  static std::string head(std::string_view status, std::size_t num_bytes, std::string_view more) {
    return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n", status,
                       num_bytes, more);
  }

  // A client that has enough may hang up.
  static void send_all(int client, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  std::string folder_;
  std::string text_;
  Ranges ranges_;
  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
  std::atomic<std::size_t> num_requests_ = 0;
  std::atomic<std::size_t> num_bytes_sent_ = 0;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace lockstep::datasets
