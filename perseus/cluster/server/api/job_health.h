// Says whether the training of a job runs, and what needs a person. This is the only place that
// decides it, for answers, metrics, the log and alerts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cluster/store/store.h"

namespace perseus::server {

// How the ranks of a job on one node do.
struct NodeHealth {
  int ranks = 0;          // Attached ranks.
  int running = 0;        // 0 if the node is lost. An older node counts all its ranks.
  int without_lease = 0;  // Ranks that follow a plan without a lease of their GPU.
  bool is_lost = false;   // The node sent no report for 15 s.
};
NodeHealth HealthOf(const store::NodeRecord& node, Milliseconds now);

enum class Training {
  kIdle,      // No rank is attached, and none was.
  kStarting,  // The ranks have not ended a step yet.
  kRuns,      // Steps are fresh: the last one ended less than 15 s or 3 steps ago.
  // No fresh step, but the ranks run: a checkpoint, an evaluation, or a rank that hangs.
  kPaused,
  // No rank runs. Or no fresh step, and a rank does not run, or the last step ended 10 minutes ago.
  kStopped,
  kEnded,  // The ranks ended their steps and were detached: they ended, and were not killed.
};
std::string_view Name(Training training);

struct JobHealth {
  Training training = Training::kIdle;
  std::optional<double> last_step_s_ago = {};
  NodeHealth ranks = {};  // The sums over all nodes.
  std::vector<std::string> lost_nodes = {};
  // "n0 (2 of 4 ranks)": the nodes with ranks without a lease.
  std::vector<std::string> nodes_without_lease = {};
  // Whether the measurements of recent steps show the present. Otherwise, no mean may contain them.
  bool IsFresh() const { return training == Training::kRuns; }
  // Whether the plan can save energy now, as far as the ranks show it.
  bool FollowsPlan() const {
    return training != Training::kPaused && training != Training::kStopped &&
           training != Training::kEnded && ranks.without_lease == 0;
  }
};
JobHealth HealthOf(const store::JobRecord& job, const std::vector<store::NodeRecord>& nodes,
                   Milliseconds now);

// A reason why a job needs a person.
struct Need {
  std::string_view reason;  // "planning", "stopped", "lost", "lease" or "withdrawn".
  std::string text;         // The cause and the remedy.
};
std::vector<Need> NeedsOf(const store::JobRecord& job, const JobHealth& health,
                          const std::optional<store::GuardRecord>& guard);

}  // namespace perseus::server
