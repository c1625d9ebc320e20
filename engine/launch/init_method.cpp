#include "engine/launch/init_method.h"

#include <charconv>

#include "engine/core/error.h"

namespace lockstep::launch {

Endpoint parse_endpoint(std::string_view what, std::string_view text, int default_port) {
  Endpoint endpoint;
  endpoint.port = default_port;
  std::string_view port;
  const std::size_t bracket = text.find(']');
  const std::size_t colon =
      text.starts_with('[') ? text.find(':', bracket) : text.find_last_of(':');
  // More than one colon outside brackets: an IPv6 address, and no port.
  const bool is_bare_ipv6 = !text.starts_with('[') && text.find(':') != colon;
  endpoint.host = is_bare_ipv6 ? text : text.substr(0, colon);
  if (colon != std::string_view::npos && !is_bare_ipv6) {
    port = text.substr(colon + 1);
    const auto [rest, problem] =
        std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    require(problem == std::errc{} && rest == port.data() + port.size(), ErrorCode::Usage, what,
            "expected HOST:PORT or [IPv6]:PORT, found '{}'", text);
  }
  if (text.starts_with('[')) {
    require(
        bracket != std::string_view::npos && (colon == bracket + 1 || bracket + 1 == text.size()),
        ErrorCode::Usage, what, "expected HOST:PORT or [IPv6]:PORT, found '{}'", text);
    endpoint.host = text.substr(1, bracket - 1);
  }
  require(!endpoint.host.empty() && endpoint.port >= 1 && endpoint.port <= 65535, ErrorCode::Usage,
          what, "expected HOST:PORT with a port from 1 to 65535, found '{}'", text);
  return endpoint;
}

InitMethod parse_init_method(std::string_view text) {
  InitMethod method;
  if (text == "env://") return method;
  if (text.starts_with("tcp://")) {
    const Endpoint endpoint = parse_endpoint("init method", text.substr(6), 0);
    method.kind = InitMethod::Kind::tcp;
    method.host = endpoint.host;
    method.port = endpoint.port;
    return method;
  }
  if (text.starts_with("file://") && text.size() > 7) {
    method.kind = InitMethod::Kind::file;
    method.path = text.substr(7);
    return method;
  }
  fail(ErrorCode::Usage, "init method",
       "expected env://, tcp://HOST:PORT or file:///PATH, found '{}'", text);
}

}  // namespace lockstep::launch
