#include "tools/commands/hints.h"

#include <string_view>

namespace lockstep::tools {
namespace {

struct Hint {
  std::string_view advice;  // as the engine words it
  std::string_view flag;
};

constexpr Hint kHints[] = {
    {"[link]", "[--link]"},
    {"[model]", "[--model]"},
    {"[simulated machine]", "[--act-as]"},
    {"train it on a text",
     "use --dataset tinyshakespeare, embedded-text, text:FILE or tokens:FILE"},
    {"a part of the first learning rate", "a part of --lr"},
    {"strip_prefix(state, \"module.\") helps", "--strip-prefix helps"},
    {"take it off with strip_prefix",
     "take it off with --strip-prefix, in a program with strip_prefix"},
    {"or the exact sampler", "or --sampler exact"},
    {"use fewer devices", "use fewer --devices"},
    {"shared memory needs all ranks", "--transport shm needs all ranks"},
    {"use the automatic transport or TCP", "use --transport auto or tcp"},
    {"; TCP needs neither", "; --transport tcp needs neither"},
    {"by another program; choose another port",
     "by another program; choose another --master-port, or --standalone, which takes a free one"},
    {"is in use; choose another port",
     "is in use; choose another one with --master-port, or let --standalone take a free one"},
    {"give this job another port", "give this job another --master-port"},
    {"its own MASTER_PORT,", "its own MASTER_PORT (lockstep run --standalone takes a free one),"},
    {"use the engine's own communicator", "use --comm own"},
    {"leave the plan to it", "use --plan auto"},
    {"let them share it to check", "--nccl-share-gpu to check"},
    {"run the step without a graph", "train without --graph"},
    {"or threads per device", "or --threads-per-device"},
    {"LOCKSTEP_VIRTUAL_DEVICES=", "--virtual-devices "},
};

}  // namespace

std::string with_flags(std::string message) {
  for (const Hint& hint : kHints) {
    const std::size_t found = message.find(hint.advice);
    if (found != std::string::npos) message.replace(found, hint.advice.size(), hint.flag);
  }
  return message;
}

}  // namespace lockstep::tools
