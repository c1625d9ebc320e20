#include "engine/checkpoint/torch_file.h"

#include <fmt/format.h>

#include <string_view>

#include "engine/core/text.h"

namespace lockstep::checkpoint {
namespace {

// A zip archive's first entry; its name comes after 26 bytes and the lengths of name and extra.
constexpr std::string_view kZipEntry = "PK\x03\x04";
constexpr std::size_t kZipNameAt = 30;

// A pickle of protocol 2 that begins with torch.save's magic number, a long of ten bytes.
constexpr std::string_view kLegacy = "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.";

}  // namespace

bool is_torch_file(std::span<const std::byte> start) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (text.starts_with(kLegacy)) return true;
  if (!text.starts_with(kZipEntry) || text.size() < kZipNameAt) return false;
  const std::size_t length =
      static_cast<unsigned char>(text[26]) | static_cast<unsigned char>(text[27]) << 8;
  return text.substr(kZipNameAt, length).ends_with("/data.pkl");
}

// weights_only: it runs nothing that stands in the file. clone: tied weights share memory, which
// safetensors refuses.
std::string torch_file_conversion(const std::filesystem::path& path) {
  std::filesystem::path converted = path;
  converted.replace_extension(".safetensors");
  return fmt::format(
      "python3 -c \"import sys, torch, safetensors.torch as st; s = torch.load(sys.argv[1], "
      "map_location='cpu', weights_only=True); st.save_file({{k: v.clone().contiguous() for k, v "
      "in "
      "s.get('state_dict', s).items()}}, sys.argv[2], {{'format': 'pt'}})\" {} {}",
      shell_quoted(path.string()), shell_quoted(converted.string()));
}

}  // namespace lockstep::checkpoint
