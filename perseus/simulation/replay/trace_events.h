// Reads the events of a Chrome trace as they stand in the file. It makes one pass over the JSON and
// builds no tree, so its memory is that of the largest value (text_stream.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "perseus/base/result.h"
#include "perseus/simulation/replay/text_stream.h"

namespace perseus::replay {

// Fields that the event lacks, or that have another type, are absent.
struct TraceEvent {
  std::int64_t index = 0;  // In the list of the file, from 0.
  std::string name;
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
};

// Calls `take` with each event in turn. Stops at its first failure and returns that. Fails (kInput)
// for text that is not a Chrome trace, and as TextStream does. The message names the event at which
// reading stopped. The caller puts the name of the file before it.
Result<void> ReadTraceEvents(TextStream& text,
                             const std::function<Result<void>(const TraceEvent&)>& take);

}  // namespace perseus::replay
