#include "perseus/simulation/replay/trace_events.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"

namespace perseus::replay {
namespace {

using nlohmann::json;

constexpr std::string_view kExpected =
    "expected a Chrome trace: a list of events, or {\"traceEvents\": [...]}";

enum class Field : std::uint8_t {
  kNone,
  kName,
  kPhase,
  kProcess,
  kThread,
  kTimestamp,
  kDuration,
  kArguments,
  kThreadName,
  kStep,
  kChunk,
  kMicrobatch,
  kSequence,
  kPpRank,
  kTpRank,
  kCategory,
  kFormat,
  kBaseTime,
  kRank,
  kGroupName,
  kGroupRanks,
};

Field FieldOfEvent(std::string_view key) {
  if (key == "name") return Field::kName;
  if (key == "cat") return Field::kCategory;
  if (key == "ph") return Field::kPhase;
  if (key == "pid") return Field::kProcess;
  if (key == "tid") return Field::kThread;
  if (key == "ts") return Field::kTimestamp;
  if (key == "dur") return Field::kDuration;
  if (key == "args") return Field::kArguments;
  return Field::kNone;
}

Field FieldOfArguments(std::string_view key) {
  if (key == "name") return Field::kThreadName;
  if (key == "step") return Field::kStep;
  if (key == "model_chunk") return Field::kChunk;
  if (key == "mb_id") return Field::kMicrobatch;
  if (key == "seq_id") return Field::kSequence;
  if (key == "pp") return Field::kPpRank;
  if (key == "tp") return Field::kTpRank;
  return Field::kNone;
}

// The fields of the file that are not in its list of events, by nesting level. torch.profiler
// writes {"distributedInfo": {"rank": 0, "pg_config": [{"pg_desc": "mesh_tp", "ranks": [0, 1]}]}}.
Field FieldOfHeader(std::string_view key, std::size_t depth) {
  if (depth == 1 && key == "format") return Field::kFormat;
  if (depth == 1 && key == "baseTimeNanoseconds") return Field::kBaseTime;
  if (depth == 2 && key == "rank") return Field::kRank;
  if (depth == 4 && key == "pg_desc") return Field::kGroupName;
  if (depth == 4 && key == "ranks") return Field::kGroupRanks;
  return Field::kNone;
}

// The list of events is at the nesting level `list_depth_`. An event is one level deeper, its
// arguments are two levels deeper. All other values are skipped.
class Handler : public nlohmann::json_sax<json> {
 public:
  Handler(TextStream& text, const TakeTraceEvent& take) : text_(text), take_(take) {}

  bool null() override { return Scalar(); }
  bool boolean(bool) override { return Scalar(); }
  bool number_integer(number_integer_t value) override { return Integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return Integer(static_cast<std::int64_t>(value));
    }
    return Real(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    // Some tracers write whole numbers as 8.0.
    constexpr double kLargestExactInteger = 9007199254740992;
    const bool is_whole = std::abs(value) <= kLargestExactInteger && value == std::floor(value);
    return is_whole ? Integer(static_cast<std::int64_t>(value)) : Real(value);
  }
  bool string(string_t& value) override {
    if (field_ == Field::kName) event_.name = std::move(value);
    if (field_ == Field::kCategory) event_.category = std::move(value);
    if (field_ == Field::kPhase) event_.phase = std::move(value);
    if (field_ == Field::kFormat) format_ = std::move(value);
    if (field_ == Field::kGroupName) is_tp_group_ = value == "mesh_tp";
    if (field_ == Field::kThreadName) event_.thread_name = std::move(value);
    return Scalar();
  }
  bool binary(binary_t&) override { return Scalar(); }

  bool start_object(std::size_t) override {
    text_.EndValue();
    if (IsEventNext()) {
      const std::int64_t index = event_.index;
      event_ = TraceEvent{};
      event_.index = index;
    } else if (is_in_list_ && depth_ == list_depth_ + 1 && field_ == Field::kArguments) {
      is_in_arguments_ = true;
    }
    ++depth_;
    field_ = Field::kNone;
    return true;
  }
  bool end_object() override {
    text_.EndValue();
    --depth_;
    field_ = Field::kNone;
    if (is_in_list_ && depth_ == list_depth_ + 1) is_in_arguments_ = false;
    if (!is_in_list_) EndGroup();
    if (!IsEventNext()) return true;
    if (Result<void> taken = take_(event_, header_); !taken) return Stop(taken.error().Message());
    ++event_.index;
    return true;
  }
  bool start_array(std::size_t) override {
    text_.EndValue();
    const bool is_list = !has_list_ && (depth_ == 0 || (depth_ == 1 && is_list_next_));
    if (IsEventNext()) return NotAnEvent();
    ++depth_;
    is_in_group_ranks_ = field_ == Field::kGroupRanks;
    if (is_list) {
      has_list_ = is_in_list_ = true;
      list_depth_ = depth_;
    }
    field_ = Field::kNone;
    return true;
  }
  bool end_array() override {
    text_.EndValue();
    if (is_in_list_ && depth_ == list_depth_) is_in_list_ = false;
    is_in_group_ranks_ = false;
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    text_.EndValue();
    is_list_next_ = depth_ == 1 && key == "traceEvents";
    field_ = Field::kNone;
    if (!is_in_list_) return HeaderKey(key);
    if (depth_ == list_depth_ + 1) field_ = FieldOfEvent(key);
    if (depth_ == list_depth_ + 2 && is_in_arguments_) field_ = FieldOfArguments(key);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    const std::size_t column = what.find("column");
    const std::size_t colon = column == std::string_view::npos ? column : what.find(": ", column);
    if (!text_.status()) return Stop(Where() + text_.status().error().Message());
    return Stop(fmt::format(
        "{}not JSON: {} ({})", Where(),
        Explained(colon == std::string_view::npos ? what : what.substr(colon + 2)), kExpected));
  }

  bool has_list() const { return has_list_; }
  const TraceHeader& header() const { return header_; }
  const std::string& format() const { return format_; }
  const std::string& error() const { return error_; }

 private:
  bool HeaderKey(std::string_view key) {
    header_.is_torch_profiler |= depth_ == 1 && key == "schemaVersion";
    if (depth_ == 1) is_in_distributed_info_ = key == "distributedInfo";
    if (depth_ == 1 || is_in_distributed_info_) field_ = FieldOfHeader(key, depth_);
    return true;
  }
  void EndGroup() {
    if (is_tp_group_ && !group_ranks_.empty()) {
      header_.first_tp_rank = *std::ranges::min_element(group_ranks_);
    }
    is_tp_group_ = false;
    group_ranks_.clear();
  }
  std::string Where() const {
    return is_in_list_ ? fmt::format("in or after event {}: ", event_.index) : "";
  }
  bool IsEventNext() const { return is_in_list_ && depth_ == list_depth_; }
  bool NotAnEvent() {
    return Stop(fmt::format("event {} is not an object ({})", event_.index, kExpected));
  }
  bool Stop(std::string message) {
    error_ = std::move(message);
    return false;
  }
  bool Scalar() {
    text_.EndValue();
    if (IsEventNext()) return NotAnEvent();
    field_ = Field::kNone;
    return true;
  }
  bool Integer(std::int64_t value) {
    if (is_in_group_ranks_) group_ranks_.push_back(value);
    switch (field_) {
      case Field::kProcess:
        event_.process = value;
        break;
      case Field::kThread:
        event_.thread = value;
        break;
      case Field::kStep:
        event_.step = value;
        break;
      case Field::kChunk:
        event_.chunk = value;
        break;
      case Field::kMicrobatch:
        event_.microbatch = value;
        break;
      case Field::kSequence:
        event_.sequence = value;
        break;
      case Field::kPpRank:
        event_.pp_rank = value;
        break;
      case Field::kTpRank:
        event_.tp_rank = value;
        break;
      case Field::kBaseTime:
        header_.base_time_ns = value;
        break;
      case Field::kRank:
        header_.rank = value;
        break;
      default:
        return Real(static_cast<double>(value));
    }
    return Scalar();
  }
  bool Real(double value) {
    if (field_ == Field::kTimestamp) event_.timestamp_us = value;
    if (field_ == Field::kDuration) event_.duration_us = value;
    return Scalar();
  }

  TextStream& text_;
  const TakeTraceEvent& take_;
  TraceHeader header_;
  std::string format_;  // The value of "format", which some files have.
  bool is_in_distributed_info_ = false;
  bool is_tp_group_ = false;  // Whether the current group of ranks is a tensor-parallel one.
  bool is_in_group_ranks_ = false;
  std::vector<std::int64_t> group_ranks_;
  TraceEvent event_;
  Field field_ = Field::kNone;
  std::size_t depth_ = 0;
  std::size_t list_depth_ = 0;
  bool is_list_next_ = false;
  bool has_list_ = false;
  bool is_in_list_ = false;
  bool is_in_arguments_ = false;
  std::string error_;
};

constexpr std::size_t kMostBytesOfPiece = std::size_t{1} << 18;

constexpr std::string_view kGzip = "\x1f\x8b";

// Returns the format of the bytes if they are not UTF-8 text. Otherwise, returns an empty text.
std::string_view OtherFormat(std::string_view bytes) {
  using namespace std::string_view_literals;
  constexpr struct {
    std::string_view begin, format;
  } kFormats[] = {{kGzip, "gzip"},
                  {"\x28\xb5\x2f\xfd", "zstd"},
                  {"PK\x03\x04", "zip"},
                  {"BZh", "bzip2"},
                  {"\xfd\x37zXZ", "xz"},
                  {"\x04\x22\x4d\x18", "lz4"},
                  {"\xff\xfe", "UTF-16"},
                  {"\xfe\xff", "UTF-16"},
                  {"\0\0\xfe\xff"sv, "UTF-32"},
                  {"SQLite format 3", "an SQLite database, as of Nsight Systems"},
                  {"\x80\x04", "a Python pickle"}};
  for (const auto& [begin, format] : kFormats) {
    if (bytes.starts_with(begin)) return format;
  }
  return bytes.substr(0, 4).find('\0') == std::string_view::npos ? "" : "binary data";
}

}  // namespace

Result<TraceHeader> ReadTraceEvents(TextStream& text, const TakeTraceEvent& take) {
  Handler handler(text, take);
  std::istream stream(&text);
  if (!json::sax_parse(stream, &handler)) {
    return FailAs(text.status() ? ErrorKind::kInput : text.status().error().kind, "{}",
                  handler.error());
  }
  // The end of the text may have been its last error.
  PERSEUS_RETURN_IF_ERROR(text.status());
  if (!handler.has_list()) {
    return Fail("the file {} ({})",
                handler.format().empty() ? "has no list of events"
                                         : "is a " + Excerpt(handler.format()) + " file",
                kExpected);
  }
  return handler.header();
}

// Owns the state of zlib.
class TextStream::Inflater {
 public:
  Inflater() : is_ready_(inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK) {}
  ~Inflater() {
    if (is_ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool is_ready() const { return is_ready_; }
  z_stream& stream() { return stream_; }
  int status = Z_OK;  // The status of the last call of inflate().

 private:
  static constexpr int kGzipOnly = 16;
  z_stream stream_{};
  bool is_ready_;
};

TextStream::TextStream(std::string_view bytes, std::size_t most_bytes)
    : rest_(bytes), most_bytes_(most_bytes) {
  if (!bytes.starts_with(kGzip)) return;
  inflater_ = std::make_unique<Inflater>();
  buffer_.resize(kMostBytesOfPiece);
  if (!inflater_->is_ready()) {
    status_ = FailAs(ErrorKind::kSystem, "zlib cannot start (out of memory?)");
  }
}

TextStream::~TextStream() = default;

TextStream::int_type TextStream::underflow() {
  if (status_) status_ = TakePiece();
  return status_ && gptr() != egptr() ? traits_type::to_int_type(*gptr()) : traits_type::eof();
}

void TextStream::Show(char* piece, std::size_t size) { setg(piece, piece, piece + size); }

// Replaces the current piece, which has been read, by the next piece. At the end of the text, the
// next piece is empty.
Result<void> TextStream::TakePiece() {
  before_ = position();
  Show(buffer_.data(), 0);
  if (before_ - value_begin_ > kMostBytesOfValue) {
    return Fail("the value or gap after byte {} of the text is longer than {} MiB (is it a trace?)",
                value_begin_, kMostBytesOfValue >> 20);
  }
  if (inflater_ != nullptr) {
    PERSEUS_ASSIGN_OR_RETURN(const std::size_t size, Inflate());
    Show(buffer_.data(), size);
  } else {
    const std::size_t size = std::min(rest_.size(), kMostBytesOfPiece);
    // std::streambuf wants a pointer to non-const, but only writes through it in pbackfail().
    Show(const_cast<char*>(rest_.data()), size);
    rest_.remove_prefix(size);
  }
  const std::string_view piece(gptr(), egptr());
  if (before_ == 0) PERSEUS_RETURN_IF_ERROR(CheckBegin(piece));
  if (before_ + piece.size() > most_bytes_) {
    return Fail("the trace has more than {} bytes of text (record fewer steps)", most_bytes_);
  }
  return {};
}

Result<void> TextStream::CheckBegin(std::string_view piece) const {
  if (piece.empty()) return Fail("the file has no text (record at least one step)");
  const std::string_view format = OtherFormat(piece);
  if (format.empty()) return {};
  return Fail("the {} is {} (expected text in UTF-8, or such text in gzip)",
              inflater_ == nullptr ? "file" : "content of the gzip data", format);
}

// Fills the buffer with the next bytes of text, and returns their number. 0 is the end of the text.
Result<std::size_t> TextStream::Inflate() {
  z_stream& stream = inflater_->stream();
  stream.next_out = reinterpret_cast<Bytef*>(buffer_.data());
  stream.avail_out = static_cast<uInt>(buffer_.size());
  while (stream.avail_out == buffer_.size()) {
    if (stream.avail_in == 0) {
      const std::size_t part = std::min(rest_.size(), kMostBytesOfPiece);
      // The type of next_in is not const, but zlib only reads from it.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
      stream.avail_in = static_cast<uInt>(part);
      rest_.remove_prefix(part);
    }
    // Before the end of a member, inflate() may still hold text although it has no input.
    const bool has_input = stream.avail_in > 0;
    if (inflater_->status == Z_STREAM_END) {
      if (!has_input) return 0;
      inflateReset(&stream);  // Another member follows.
    }
    inflater_->status = inflate(&stream, Z_NO_FLUSH);
    if (inflater_->status == Z_BUF_ERROR && !has_input) {
      return Fail("the gzip data ends early, after {} bytes of text (copy the whole file again)",
                  before_);
    }
    if (inflater_->status != Z_OK && inflater_->status != Z_STREAM_END &&
        inflater_->status != Z_BUF_ERROR) {
      return Fail("the gzip data is damaged after {} bytes of text: {} (copy the file again)",
                  before_, stream.msg == nullptr ? "not gzip" : stream.msg);
    }
  }
  return buffer_.size() - stream.avail_out;
}

}  // namespace perseus::replay
