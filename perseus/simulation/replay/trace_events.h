// Reads the events of a Chrome trace in the order of the file. Makes one pass over the JSON and
// builds no tree, so it needs only the memory of the largest value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::replay {

// The longest value, and the longest gap between two values, in bytes of text. A reader has to keep
// a whole value in memory.
inline constexpr std::size_t kMostBytesOfValue = std::size_t{16} << 20;

// The latest time of an event. Chrome counts microseconds, and some tracers count them since 1970.
// With larger values, a number of nanoseconds would overflow.
inline constexpr double kLatestMicroseconds = 4e15;

// The text of a file, compressed with gzip (RFC 1952) or not, for a reader that takes it in pieces.
//
// Only one piece of decompressed text is in memory at any time. A small gzip file may contain a
// thousand times as much text. So the size of the text and the size of each value are limited.
class TextStream : public std::streambuf {
 public:
  // `bytes` must outlive the stream. The decompressed text may have at most `most_bytes` bytes.
  TextStream(std::string_view bytes, std::size_t most_bytes);
  ~TextStream() override;
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  // Call it after each value.
  void EndValue() { value_begin_ = position(); }

  // Whether reading has succeeded so far. Fails (kInput) if the gzip data end early or are damaged,
  // if there is no text or another format, or if the text or a value is too long.
  const Result<void>& status() const { return status_; }

 protected:
  int_type underflow() override;

 private:
  class Inflater;

  std::size_t position() const { return before_ + static_cast<std::size_t>(gptr() - eback()); }
  Result<void> TakePiece();
  Result<void> CheckBegin(std::string_view piece) const;
  Result<std::size_t> Inflate();
  void Show(char* piece, std::size_t size);

  std::string_view rest_;  // The rest of the bytes.
  const std::size_t most_bytes_;
  std::unique_ptr<Inflater> inflater_;  // Null if the bytes are not gzip.
  std::string buffer_;                  // The current piece of decompressed text.
  std::size_t before_ = 0;              // Bytes of text before the current piece.
  std::size_t value_begin_ = 0;
  Result<void> status_;
};

// An event. If the event lacks a field, or if the field has another type, the field is absent here.
struct TraceEvent {
  std::int64_t index = 0;  // In the list of the file, from 0.
  std::string name;
  std::string category;
  std::string phase;
  std::optional<std::int64_t> process;
  std::optional<std::int64_t> thread;
  std::optional<double> timestamp_us;
  std::optional<double> duration_us;
  // The fields of "args".
  std::string thread_name;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> chunk;
  std::optional<std::int64_t> microbatch;
  std::optional<std::int64_t> sequence;
  std::optional<std::int64_t> pp_rank;  // "pp" and "tp": veScale's ndtimeline writes them.
  std::optional<std::int64_t> tp_rank;
};

// What a trace says besides its events.
struct TraceHeader {
  bool is_torch_profiler = false;  // The file is a trace of torch.profiler (Kineto).
  // These fields are of torch.profiler.
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t>
      first_tp_rank;              // The first rank of this rank's tensor-parallel group.
  std::int64_t base_time_ns = 0;  // The time 0 of `timestamp_us`.
};

// Calls `take` with each event, one after another, and with what is known of the header. Stops at
// the first failure of `take` and returns this failure. Returns the complete header. Fails (kInput)
// for text that is not a Chrome trace, and as TextStream does. The message names the event at which
// reading stopped. The caller adds the name of the file.
using TakeTraceEvent = std::function<Result<void>(const TraceEvent&, const TraceHeader&)>;
Result<TraceHeader> ReadTraceEvents(TextStream& text, const TakeTraceEvent& take);

}  // namespace perseus::replay
