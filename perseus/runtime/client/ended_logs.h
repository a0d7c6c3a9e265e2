// The rank logs that ended sessions of this process have written. A later session of the same rank
// continues the log of the earlier one: a training may make its pipeline again, or may attach again
// after an evaluation.
//
// Two ways were considered. Readers could join the logs of two sessions. But they cannot know
// whether the step 0 of a second header is a new step or a restart of the job, and the versions of
// assignments count in steps. So the writer continues instead: with the next number of a step and
// the same epoch. For readers, the process has one session.
//
// The process identifier in the file does not identify a process, because the processes of two
// containers often have the same one. So the process itself keeps this list. Like live_sessions.h,
// it takes no lock and allocates nothing: a forked child may use it, and forgets its parent's logs.
//
// Thread safety: any thread may call.
#pragma once

#include <cstdint>
#include <optional>

#include "perseus/base/units.h"

namespace perseus::client {

struct EndedLog {
  // The file. If another process has written since, it has another size.
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t size = 0;
  std::uint64_t pipeline = 0;  // A hash of what must be the same: GPU, stages, number of ranks.
  std::int64_t next_step = 0;
  Nanoseconds epoch = 0;
};

// Replaces what was known about the file. If 256 logs are known, forgets the new one.
void RememberEndedLog(const EndedLog& log);
// Returns what a session of this process knew when it closed this file, unless the file has changed
// since, or the pipeline differs.
std::optional<EndedLog> FindEndedLog(const EndedLog& wanted);

}  // namespace perseus::client
