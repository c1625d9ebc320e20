#include "engine/comm/store/store_protocol.h"

#include <bit>
#include <cstring>

#include "engine/core/shape.h"

namespace lockstep::comm {

static_assert(std::endian::native == std::endian::little, "messages are copied as they lie");

StoreWriter::StoreWriter(std::uint32_t kind) {
  const StoreHeader header{0, kind};
  append(&header.num_bytes, sizeof header.num_bytes);
  append(&header.kind, sizeof header.kind);
}

void StoreWriter::append(const void* data, std::size_t num_bytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  message_.insert(message_.end(), bytes, bytes + num_bytes);
}

StoreWriter& StoreWriter::number(std::int64_t value) {
  append(&value, sizeof value);
  return *this;
}

StoreWriter& StoreWriter::count(std::size_t value) {
  const auto narrow = checked_narrow<std::uint32_t>("store", "the length of a text", value);
  append(&narrow, sizeof narrow);
  return *this;
}

StoreWriter& StoreWriter::text(std::string_view value) {
  count(value.size());
  append(value.data(), value.size());
  return *this;
}

std::vector<std::byte> StoreWriter::finish() {
  const auto num_bytes = checked_narrow<std::uint32_t>("store", "the bytes of a message",
                                                       message_.size() - kStoreHeaderBytes);
  std::memcpy(message_.data(), &num_bytes, sizeof num_bytes);
  return std::move(message_);
}

bool StoreReader::read(void* value, std::size_t num_bytes) {
  is_valid_ = is_valid_ && rest_.size() >= num_bytes;
  if (!is_valid_) return false;
  std::memcpy(value, rest_.data(), num_bytes);
  rest_ = rest_.subspan(num_bytes);
  return true;
}

std::int64_t StoreReader::number() {
  std::int64_t value = 0;
  read(&value, sizeof value);
  return value;
}

std::size_t StoreReader::count() {
  std::uint32_t value = 0;
  read(&value, sizeof value);
  return value;
}

std::string StoreReader::text() {
  const std::size_t num_bytes = count();
  is_valid_ = is_valid_ && num_bytes <= rest_.size();
  if (!is_valid_) return {};
  std::string value(reinterpret_cast<const char*>(rest_.data()), num_bytes);
  rest_ = rest_.subspan(num_bytes);
  return value;
}

StoreHeader read_store_header(std::span<const std::byte> bytes) {
  StoreHeader header;
  std::memcpy(&header.num_bytes, bytes.data(), sizeof header.num_bytes);
  std::memcpy(&header.kind, bytes.data() + sizeof header.num_bytes, sizeof header.kind);
  return header;
}

}  // namespace lockstep::comm
