// How much work a search for a plan may do, and when it ends early.
//
// EFFORT counts work (options that are examined, schedules that are solved), never seconds. So the
// same effort gives the same plan on every machine and with any number of threads. More effort
// continues the search of less effort, so its plan is never worse.
#pragma once

#include <stop_token>

namespace perseus::plan {

// The effort of a first look: the relaxed optimum, rounded, and a short search.
inline constexpr int kFirstLook = 0;
// The default. Twice the effort is about twice the work.
inline constexpr int kUsualEffort = 1;
inline constexpr int kMostEffort = 1'000'000;

struct SearchLimits {
  int effort = kUsualEffort;
  // After a stop request, the search fails (kSystem). It checks for a request between short pieces
  // of work: windows, rounds and solves.
  std::stop_token stop = {};
  // After a finish request, the search ends with the best plan so far. It always completes the
  // first look.
  std::stop_token finish = {};
  // The work of each unit of effort, relative to the default. Above 0.
  double work = 1;
};

}  // namespace perseus::plan
