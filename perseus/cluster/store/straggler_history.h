// Stragglers that are over, and how fast declared ones may change plans.
//
// Monitoring that reports a pipeline as slow, as healthy, and as slow again makes a new assignment
// each time, and changing plans costs more than it saves. So changes of declared stragglers are
// damped as those of detected ones are (telemetry/straggler_detector.h). The first two changes of a
// pipeline within kFlapping take effect at once. After n changes, planning waits 2^n s, at most
// kMaxDamping. It then plans the newest state. Other changes of the job do not wait.
#pragma once

#include <string_view>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

inline constexpr Milliseconds kFlapping = 60'000;
inline constexpr Milliseconds kMaxDamping = 32'000;
inline constexpr int kUndampedChanges = 2;

// Copies the current record of the straggler, if any, to the history. `why`: "replaced" or
// "withdrawn"; a record whose end has passed becomes "expired".
Result<void> KeepPastStraggler(Transaction& transaction, std::string_view job, int dp_rank,
                               std::string_view source, std::string_view why, Milliseconds now);

// When planning is due after a change of this straggler at `now`. Call it after KeepPastStraggler.
Result<Milliseconds> DampedDue(Transaction& transaction, std::string_view job, int dp_rank,
                               std::string_view source, Milliseconds now);

}  // namespace perseus::store
