// Turns the logs of a job's ranks into reports for the server. Makes one report for each step and
// pipeline, as soon as all ranks of the pipeline on this node have ended the step.
//
// The time and energy of a step are measured from the end of the previous step to the end of this
// step. So the sums over all steps cover the whole run, including the time between steps. The last
// value of an energy counter in a step is up to 100 ms older than the end of the step. So the
// energy of a step is its time multiplied by the mean power between the last values of two steps.
// The error is corrected in the next step.
//
// All pipelines wait for each other, so the time of a step does not show which one is slow. The
// busy time does: it contains no waiting for other pipelines, as far as ranks record it.
//
// Does no input or output. `now` is the time of any monotonic clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::node {

class StepCollector {
 public:
  // Adds a step that a rank completed. `server_version` is the server's version number of the
  // assignment that the rank followed.
  void Add(const protocol::RankHeader& rank, const protocol::RanStep& step,
           std::int64_t server_version, Nanoseconds now);
  // Handles a new process of the rank, whose steps count from 0.
  void Restart(const protocol::RankId& rank);
  // Returns the steps that all ranks have ended, or that the remaining ranks did not end in time.
  // In each pipeline, steps are ascending and unique.
  std::vector<protocol::StepReport> Take(Nanoseconds now);

  // Whether Take() has returned all steps.
  bool IsEmpty() const;

 private:
  struct Sample {
    Nanoseconds at = 0;  // The time since 1970.
    double energy_j = 0;
  };
  struct Pending {
    std::set<protocol::RankId> ranks;
    // Times since 1970.
    Nanoseconds begin = 0;  // When the first rank began the step.
    Nanoseconds busy = 0;   // When the last computation of all ranks ended.
    Nanoseconds end = 0;    // When the last rank ended the step.
    double power_w = 0;
    bool is_power_known = true;
    std::int64_t version = 0;
    int limited = 0;         // Ranks whose clock heat or another program limited (IsDisturbed).
    int without_clocks = 0;  // Ranks that have a plan but no lease.
    Nanoseconds since = 0;   // When the first record of the step came.
  };
  struct Pipeline {
    std::set<protocol::RankId> ranks;  // A step is complete when all these ranks have ended it.
    std::map<std::int64_t, Pending> steps;
    std::optional<std::pair<std::int64_t, Nanoseconds>> reported;  // The last step, and its end.
  };

  std::optional<double> PowerOf(const protocol::RankHeader& rank, const protocol::RanStep& step);
  static bool IsDue(const Pipeline& pipeline, std::map<std::int64_t, Pending>::const_iterator step,
                    Nanoseconds now);
  static protocol::StepReport ReportOf(int number, const Pipeline& pipeline, std::int64_t step,
                                       const Pending& pending);

  std::map<int, Pipeline> pipelines_;
  std::map<protocol::RankId, Sample> last_samples_;
};

}  // namespace perseus::node
