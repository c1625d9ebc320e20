#include "engine/comm/transport/tcp/greeting.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm {
namespace {

constexpr std::size_t kGreetingBytes = 64;
constexpr const char* kPurpose = "tcp";

struct GreetingLayout {
  std::uint32_t magic = 0x3147534c;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::uint32_t zeros[5] = {};
  Digest group{};
};
static_assert(sizeof(GreetingLayout) == kGreetingBytes);

}  // namespace

Greeting::Greeting(Identity mine, Side side)
    : mine_(std::move(mine)), step_(side == Side::connects ? Step::answer : Step::hello) {
  if (side == Side::accepts) {
    server_.emplace(mine_.token, kPurpose);
    return;
  }
  client_.emplace(mine_.token, kPurpose);
  send(client_->hello());
}

std::size_t Greeting::num_bytes_wanted() const {
  switch (step_) {
    case Step::hello:
      return kHelloBytes;
    case Step::answer:
      return kAnswerBytes;
    case Step::proof_and_greeting:
      return kProofBytes + kGreetingBytes;
    case Step::greeting:
      return kGreetingBytes;
    default:
      return 0;
  }
}

void Greeting::receive(std::span<const std::byte> bytes) {
  const Step step = std::exchange(step_, Step::failed);
  if (step == Step::hello) {
    const auto answer = server_->answer(bytes.first<kHelloBytes>());
    if (!answer) return;
    send(*answer);
    step_ = Step::proof_and_greeting;
  } else if (step == Step::answer) {
    Answer answer;
    std::ranges::copy(bytes, answer.begin());
    const auto proof = client_->proof(answer);
    if (!proof) return;
    send(*proof);
    send(greeting());
    step_ = Step::greeting;
  } else if (step == Step::proof_and_greeting) {
    if (!server_->is_proven(bytes.first<kProofBytes>())) return;
    read_greeting(bytes.subspan(kProofBytes));
    if (peer_) send(greeting());
  } else {
    read_greeting(bytes);
  }
}

std::vector<std::byte> Greeting::greeting() const {
  GreetingLayout layout;
  layout.rank = mine_.rank;
  layout.world_size = mine_.world_size;
  layout.group = sha256(std::as_bytes(std::span(mine_.group)));
  std::vector<std::byte> bytes(sizeof layout);
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

void Greeting::read_greeting(std::span<const std::byte> bytes) {
  GreetingLayout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  const bool is_ours = layout.magic == GreetingLayout{}.magic &&
                       layout.world_size == mine_.world_size &&
                       layout.group == sha256(std::as_bytes(std::span(mine_.group))) &&
                       layout.rank >= 0 && layout.rank < mine_.world_size;
  if (!is_ours) return;
  peer_ = layout.rank;
  step_ = Step::done;
}

void Greeting::send(std::span<const std::byte> bytes) {
  output_.insert(output_.end(), bytes.begin(), bytes.end());
}

}  // namespace lockstep::comm
