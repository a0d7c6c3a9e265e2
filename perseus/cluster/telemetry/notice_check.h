// Checks declared slowdowns (reports and forecasts of stragglers) against measurements.
//
// A notice says that pipeline p takes s times its planned time. While the notice is active, the
// other pipelines run slower. If the notice is false, or if nobody withdraws it, the whole job is
// slow without a benefit. Each judged step has the measured ratio of each pipeline
// (straggler_detector.h):
//
//   r_p = busy_p / expected_p         x_p = r_p / reference
//
// busy_p is the measured busy time of pipeline p, and expected_p is its planned time. The reference
// is the lower median of r over the pipelines that no notice declares slow and that detection does
// not find slow. If no such pipeline exists, the reference is 1. The division removes effects that
// all pipelines share.
//
// A step contradicts the notice if x_p < 1 + (s - 1) / 2. Then the pipeline is nearer to its plan
// than to the notice. After kToSuspend consecutive steps that contradict the notice, the notice is
// suspended. It is reinstated after kToReinstate consecutive steps that do not contradict it. Each
// further suspension of a notice doubles kToReinstate, up to kMaxToReinstate, because changing
// plans repeatedly costs more.
//
// Not thread safe.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "perseus/cluster/store/records.h"

namespace perseus::telemetry {

struct NoticeChange {
  int dp_rank = 0;
  store::StragglerSource source = store::StragglerSource::kReport;
  double slowdown = 1;  // The slowdown in the notice.
  bool is_suspended = false;
  double measured = 1;  // The median of x over the steps that caused this change.
  friend bool operator==(const NoticeChange&, const NoticeChange&) = default;
};

class NoticeCheck {
 public:
  static constexpr int kToSuspend = 5;
  static constexpr int kToReinstate = 2;
  static constexpr int kMaxToReinstate = 64;

  // Sets the stragglers of the job from the store. Ignores detected stragglers, because they are
  // not notices. A notice that did not change keeps its count of steps.
  void SetNotices(const std::vector<store::StragglerRecord>& stragglers);

  // Adds a judged step. `ratios` contains r by dp_rank. `detected` contains the pipelines that
  // detection finds slow. Returns the notices that have to be suspended or reinstated.
  std::vector<NoticeChange> Add(const std::map<int, double>& ratios, const std::set<int>& detected,
                                Milliseconds now);

 private:
  struct Checked {
    double slowdown = 1;
    Milliseconds starts = 0;
    Milliseconds expires = 0;
    bool is_suspended = false;
    int steps = 0;  // Consecutive steps that contradict the current state.
    int to_reinstate = kToReinstate;
    std::vector<double> measured = {};  // The values of x in these steps.
  };
  using Key = std::pair<int, store::StragglerSource>;  // dp_rank and source.

  double Reference(const std::map<int, double>& ratios, const std::set<int>& detected,
                   Milliseconds now) const;

  std::map<Key, Checked> notices_;
};

// Returns the least x that does not contradict a notice of this slowdown.
double LeastMeasured(double slowdown);

}  // namespace perseus::telemetry
