// Says when to look whether a GPU has passed an event.
//
// A look takes about 5 us of a core (a wake-up and a call of the driver). A look that comes late
// makes the clock change late. The same instruction takes almost the same time in each step (on an
// H100, it scatters by 1.3 to 3.3 %). So the looks are fine only near the expected end:
//
//   not begun    every 1/16 of the usual duration, so that the begin is known well enough
//   begun        every kEarly, because the work may be less this time; from 7/8 of the usual
//                duration on, every kFine
//   overdue      less and less often, because the event may take seconds
//
// Without a usual duration, a look comes when the wait has become 1/16 longer. All other pauses are
// between kFine and kCoarse.
#pragma once

#include <algorithm>

#include "perseus/base/units.h"

namespace perseus::client {

class PollTimes {
 public:
  static constexpr Nanoseconds kFine = 30 * kMicrosecond;
  static constexpr Nanoseconds kCoarse = 250 * kMicrosecond;
  static constexpr Nanoseconds kEarly = kMillisecond;

  // `since`: when the wait began. `usual`: how long the instruction before the event usually takes;
  // 0 if that is unknown, or if the event is not at the end of an instruction.
  PollTimes(Nanoseconds since, Nanoseconds usual) : since_(since), usual_(usual) {}

  // Whether the caller has to say when the instruction began.
  bool NeedsBegin() const { return usual_ > 0 && !has_begun_; }
  // The instruction had not begun before `at`.
  void Begin(Nanoseconds at) {
    has_begun_ = true;
    begun_ = at;
  }

  // Whether the instruction usually ends within `lead` from `now` on.
  bool EndsWithin(Nanoseconds lead, Nanoseconds now) const {
    return has_begun_ && now + lead >= begun_ + usual_;
  }

  // The next look, after one at `now` that was in vain.
  Nanoseconds After(Nanoseconds now) const {
    if (usual_ <= 0) return now + Pause((now - since_) / 16);
    if (!has_begun_) return now + Pause(usual_ / 16);
    const Nanoseconds fine_from = begun_ + usual_ - usual_ / 8;
    if (now < fine_from) return std::min(fine_from, now + kEarly);
    const Nanoseconds overdue = now - (begun_ + usual_ + usual_ / 8);
    return now + Pause(overdue / 16);
  }

 private:
  static Nanoseconds Pause(Nanoseconds wanted) { return std::clamp(wanted, kFine, kCoarse); }

  Nanoseconds since_;
  Nanoseconds usual_;
  bool has_begun_ = false;
  Nanoseconds begun_ = 0;
};

}  // namespace perseus::client
