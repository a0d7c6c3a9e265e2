#include "perseus/simulation/replay/trace_events.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

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
};

Field FieldOfEvent(std::string_view key) {
  if (key == "name") return Field::kName;
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
  return Field::kNone;
}

// The list of events is at the nesting level `list_depth_`. An event is one level deeper, its
// arguments are two levels deeper. All other values are skipped.
class Handler : public nlohmann::json_sax<json> {
 public:
  Handler(TextStream& text, const std::function<Result<void>(const TraceEvent&)>& take)
      : text_(text), take_(take) {}

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
    if (field_ == Field::kPhase) event_.phase = std::move(value);
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
    if (!IsEventNext()) return true;
    if (Result<void> taken = take_(event_); !taken) return Stop(taken.error().message);
    ++event_.index;
    return true;
  }
  bool start_array(std::size_t) override {
    text_.EndValue();
    const bool is_list = !has_list_ && (depth_ == 0 || (depth_ == 1 && is_list_next_));
    if (IsEventNext()) return NotAnEvent();
    ++depth_;
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
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    text_.EndValue();
    is_list_next_ = depth_ == 1 && key == "traceEvents";
    field_ = Field::kNone;
    if (!is_in_list_) return true;
    if (depth_ == list_depth_ + 1) field_ = FieldOfEvent(key);
    if (depth_ == list_depth_ + 2 && is_in_arguments_) field_ = FieldOfArguments(key);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    const std::size_t column = what.find("column");
    const std::size_t colon = column == std::string_view::npos ? column : what.find(": ", column);
    if (!text_.status()) return Stop(Where() + text_.status().error().message);
    return Stop(fmt::format(
        "{}not JSON: {} ({})", Where(),
        Explained(colon == std::string_view::npos ? what : what.substr(colon + 2)), kExpected));
  }

  bool has_list() const { return has_list_; }
  const std::string& error() const { return error_; }

 private:
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
  const std::function<Result<void>(const TraceEvent&)>& take_;
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

}  // namespace

Result<void> ReadTraceEvents(TextStream& text,
                             const std::function<Result<void>(const TraceEvent&)>& take) {
  Handler handler(text, take);
  std::istream stream(&text);
  if (!json::sax_parse(stream, &handler)) {
    return FailAs(text.status() ? ErrorKind::kInput : text.status().error().kind, "{}",
                  handler.error());
  }
  // The end of the text may have been its last error.
  PERSEUS_RETURN_IF_ERROR(text.status());
  if (!handler.has_list()) return Fail("the file has no list of events ({})", kExpected);
  return {};
}

}  // namespace perseus::replay
