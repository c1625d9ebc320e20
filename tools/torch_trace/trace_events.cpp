#include "tools/torch_trace/trace_events.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

// The file's bytes, unpacked. zlib hands on those of a file that isn't packed.
class ByteStream {
 public:
  explicit ByteStream(const std::string& path) : path_(path), buffer_(1 << 18) {
    file_.reset(gzopen(path.c_str(), "rb"));
    require(file_ != nullptr, ErrorCode::Io, "explain", "cannot read '{}': {}", shown(path),
            std::strerror(errno));
  }

  bool at_end() { return at_ == end_ && !refill(); }
  bool was_asked_for_more() const { return was_asked_for_more_; }  // than the file has
  char peek() { return *at_; }                                     // REQUIRES: !at_end()
  void skip() { ++at_; }
  // What has been unpacked now.
  std::string_view unread() { return at_end() ? "" : std::string_view(at_, end_); }

 private:
  bool refill() {
    const int count = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int code = Z_OK;
    const char* const text = gzerror(file_.get(), &code);
    require(code != Z_BUF_ERROR, ErrorCode::Io, "explain",
            "'{}' is cut off: copy it again, or record it again", shown(path_));
    require(count >= 0, ErrorCode::Io, "explain", "cannot read '{}': {}", shown(path_),
            code == Z_ERRNO ? std::strerror(errno) : text);
    at_ = buffer_.data();
    end_ = at_ + count;
    was_asked_for_more_ = count == 0;
    return count > 0;
  }

  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  const std::string& path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<char> buffer_;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool was_asked_for_more_ = false;
};

// nlohmann's parser reads through it; two are equal where the stream has ended.
struct ByteIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  char operator*() const { return stream->peek(); }
  ByteIterator& operator++() {
    stream->skip();
    return *this;
  }
  bool operator==(const ByteIterator&) const { return stream->at_end(); }
  bool operator!=(const ByteIterator&) const { return !stream->at_end(); }

  ByteStream* stream;
};

// Fills a TraceEvent and a TraceHead as the parser passes their fields.
// Depths: 1 the file, 2 its lists and objects, 3 an event, 4 its args, above: lists in there.
class Handler final : public nlohmann::json_sax<json> {
 public:
  explicit Handler(const std::function<void(const TraceEvent&)>& use) : use_(use) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool key(string_t& name) override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_position = position;
    return false;
  }

  TraceHead head;
  bool has_events = false;
  std::size_t error_position = 0;

 private:
  enum class Section { other, events, job, devices };

  bool number(double value);
  void event_number(double value);

  const std::function<void(const TraceEvent&)>& use_;
  TraceEvent event_;
  bool is_complete_event_ = false;
  Section section_ = Section::other;
  std::string field_;  // the last key
  std::size_t field_depth_ = 0;
  bool is_in_args_ = false;
  std::size_t depth_ = 0;
  double dims_ = 0;  // the product of one tensor's
};

bool Handler::start_object(std::size_t) {
  ++depth_;
  if (section_ == Section::events && depth_ == 3) {
    event_ = TraceEvent{};
    is_complete_event_ = false;
    is_in_args_ = false;
  }
  return true;
}

bool Handler::end_object() {
  if (section_ == Section::events && depth_ == 3 && is_complete_event_) {
    ++head.num_events;
    use_(event_);
  }
  --depth_;
  return true;
}

bool Handler::start_array(std::size_t) {
  ++depth_;
  dims_ = 0;
  return true;
}

bool Handler::end_array() {
  event_.input_elements += dims_;
  dims_ = 0;
  --depth_;
  return true;
}

bool Handler::key(string_t& name) {
  if (depth_ == 1) {
    section_ = name == "traceEvents"        ? Section::events
               : name == "distributedInfo"  ? Section::job
               : name == "deviceProperties" ? Section::devices
                                            : Section::other;
    has_events |= section_ == Section::events;
  }
  if (depth_ == 3) is_in_args_ = name == "args";
  field_.swap(name);
  field_depth_ = depth_;
  return true;
}

bool Handler::string(string_t& value) {
  if (section_ == Section::job && depth_ == 2 && field_ == "backend") head.backend = value;
  if (section_ == Section::devices && depth_ == 3 && field_ == "name" && head.gpu.empty()) {
    head.gpu = value;
  }
  if (section_ != Section::events) return true;
  if (depth_ == 3) {
    if (field_ == "ph") is_complete_event_ = value == "X";
    if (field_ == "cat") event_.category.swap(value);
    if (field_ == "name") event_.name.swap(value);
  } else if (is_in_args_ && field_depth_ == 4) {
    if (field_ == "Collective name") event_.collective.swap(value);
    const bool is_type = field_ == "dtype" || field_ == "Input type";
    if (is_type && event_.dtype.empty()) event_.dtype.swap(value);
  }
  return true;
}

bool Handler::number(double value) {
  if (!(value >= 0 && value < 1e18)) return true;  // no size, time or index
  if (section_ == Section::events) {
    event_number(value);
  } else if (section_ == Section::job && depth_ == 2) {
    if (field_ == "rank") head.rank = static_cast<std::int64_t>(value);
    if (field_ == "world_size") head.world_size = static_cast<std::int64_t>(value);
  }
  return true;
}

void Handler::event_number(double value) {
  if (depth_ == 3) {
    if (field_ == "ts") event_.begin = value * 1e-6;
    if (field_ == "dur") event_.seconds = value * 1e-6;
    if (field_ == "tid") event_.thread = static_cast<std::int64_t>(value);
  } else if (is_in_args_ && depth_ == 4) {
    if (field_ == "correlation") event_.correlation = static_cast<std::uint64_t>(value);
    if (field_ == "In msg nelems") event_.in_elements = value;
    if (field_ == "Out msg nelems") event_.out_elements = value;
    if (field_ == "Group size") event_.group_size = value;
  } else if (is_in_args_ && depth_ >= 6 && field_ == "Input Dims") {
    dims_ = dims_ == 0 ? value : dims_ * value;
  }
}

}  // namespace

TraceHead read_trace_events(const std::string& path,
                            const std::function<void(const TraceEvent&)>& use) {
  ByteStream stream(path);
  require(!stream.at_end(), ErrorCode::Io, "explain", "'{}' is empty", shown(path));
  Handler handler(use);
  if (!json::sax_parse(ByteIterator{&stream}, ByteIterator{&stream}, &handler)) {
    require(!stream.was_asked_for_more(), ErrorCode::Io, "explain",
            "'{}' is cut off after {} events: copy it again, or record it again", shown(path),
            handler.head.num_events);
    fail(ErrorCode::Io, "explain", "'{}' is not JSON at byte {}", shown(path),
         handler.error_position);
  }
  require(handler.has_events, ErrorCode::Io, "explain",
          "'{}' is no trace: expected what torch.profiler's export_chrome_trace() writes",
          shown(path));
  return handler.head;
}

bool is_trace_file(const std::string& path) try {
  constexpr std::size_t kMostBytes = 1 << 20;
  char magic[2] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  if (magic[0] == '\x1f' && magic[1] == '\x8b') return true;
  ByteStream stream(path);
  std::string head;
  while (head.size() < kMostBytes && !stream.at_end()) {
    const std::string_view chunk = stream.unread();
    head += chunk;
    for (std::size_t i = 0; i < chunk.size(); ++i) stream.skip();
    const auto has = [&](const char* part) { return head.find(part) != std::string::npos; };
    if (has("\"traceEvents\"") && (has("\"schemaVersion\"") || has("\"cpu_op\""))) return true;
  }
  return false;
} catch (const Error&) {
  return false;
}

}  // namespace lockstep::tools
