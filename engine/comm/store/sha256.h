// SHA-256 and HMAC-SHA-256: how two ends of a connection prove that they hold the same token
// without sending it.
// Source: FIPS 180-4 and RFC 2104.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep::comm {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> data);
Digest hmac_sha256(std::string_view key, std::span<const std::byte> data);

// Takes the same time wherever they differ, so that an answer's delay says nothing about it.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace lockstep::comm
