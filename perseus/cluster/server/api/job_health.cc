#include "perseus/cluster/server/api/job_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::server {
namespace {

constexpr Milliseconds kLeastFresh = 15'000;
constexpr double kFreshSteps = 3;
// A pause of a job, such as a checkpoint or an evaluation, is shorter.
constexpr Milliseconds kLongestPause = 600'000;

double MeasuredStep(const store::JobRecord& job) {
  const auto summary = ParseJson(job.summary);
  if (!summary.is_object()) return 0;
  const auto step = summary.find("step_s");
  return step != summary.end() && step->is_number() ? step->get<double>() : 0;
}

// "40 s", "4 min", "3 h".
std::string Ago(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.0f} h", seconds / kHour);
}

// "n0, n1, n2 and 5 more".
std::string FirstOf(const std::vector<std::string>& nodes) {
  constexpr std::size_t kMostNamed = 3;
  const std::size_t named = std::min(nodes.size(), kMostNamed);
  const auto end = nodes.begin() + static_cast<std::ptrdiff_t>(named);
  std::string text = fmt::format("{}", fmt::join(nodes.begin(), end, ", "));
  if (named < nodes.size()) text += fmt::format(" and {} more", nodes.size() - named);
  return text;
}

}  // namespace

NodeHealth HealthOf(const store::NodeRecord& node, Milliseconds now) {
  NodeHealth health;
  // The text is in the format of protocol::FormatRanks.
  const auto ranks = ParseJson(node.ranks);
  health.ranks = ranks.is_array() ? static_cast<int>(ranks.size()) : 0;
  health.is_lost = now - node.seen > telemetry::kNodeIsSilentAfter;
  if (health.is_lost) return health;
  health.running = node.running < 0 ? health.ranks : std::min(node.running, health.ranks);
  health.without_lease = std::min(node.without_lease, health.ranks);
  return health;
}

std::string_view Name(Training training) {
  switch (training) {
    case Training::kIdle:
      return "idle";
    case Training::kStarting:
      return "starting";
    case Training::kRuns:
      return "runs";
    case Training::kPaused:
      return "paused";
    case Training::kStopped:
      return "stopped";
    case Training::kEnded:
      return "ended";
  }
  return "";
}

JobHealth HealthOf(const store::JobRecord& job, const std::vector<store::NodeRecord>& nodes,
                   Milliseconds now) {
  JobHealth health;
  for (const store::NodeRecord& node : nodes) {
    const NodeHealth one = HealthOf(node, now);
    health.ranks.ranks += one.ranks;
    health.ranks.running += one.running;
    health.ranks.without_lease += one.without_lease;
    if (one.is_lost) health.lost_nodes.push_back(node.node);
    if (one.without_lease > 0) {
      health.nodes_without_lease.push_back(
          fmt::format("{} ({} of {})", node.node, one.without_lease, Counted(one.ranks, "rank")));
    }
  }
  const Milliseconds age = now - job.last_step_at;
  if (job.last_step >= 0) health.last_step_s_ago = std::max(0.0, ToSeconds(age));
  const bool has_all = health.ranks.running == health.ranks.ranks;
  if (health.ranks.ranks == 0) {
    health.training = job.last_step < 0 ? Training::kIdle : Training::kEnded;
  } else if (health.ranks.running == 0) {
    health.training = Training::kStopped;
  } else if (job.last_step < 0) {
    health.training = has_all ? Training::kStarting : Training::kStopped;
  } else if (age <= kLeastFresh || ToSeconds(age) <= kFreshSteps * MeasuredStep(job)) {
    health.training = Training::kRuns;
  } else {
    health.training = has_all && age <= kLongestPause ? Training::kPaused : Training::kStopped;
  }
  if (!health.IsFresh()) health.ranks.without_lease = 0;  // The last steps do not show it.
  return health;
}

std::vector<Need> NeedsOf(const store::JobRecord& job, const JobHealth& health,
                          const std::optional<store::GuardRecord>& guard) {
  std::vector<Need> needs;
  const auto add = [&needs](std::string_view reason, std::string text) {
    needs.push_back({reason, std::move(text)});
  };
  const NodeHealth& ranks = health.ranks;
  if (job.status == store::JobStatus::kFailed) {
    add("planning", fmt::format("planning failed: {}", job.problem));
  }
  if (health.training == Training::kStopped) {
    const std::string last =
        health.last_step_s_ago
            ? fmt::format(", and the last step ended {} ago", Ago(*health.last_step_s_ago))
            : "";
    add("stopped",
        fmt::format("the training has stopped: {} of {} run{} (start it again, or end the job: "
                    "perseus job end {})",
                    ranks.running, Counted(ranks.ranks, "rank"), last, job.key));
  }
  if (!health.lost_nodes.empty()) {
    add("lost", fmt::format("{} sent no report for 15 s: {} (check perseus node there)",
                            Counted(static_cast<int>(health.lost_nodes.size()), "node"),
                            FirstOf(health.lost_nodes)));
  }
  if (ranks.without_lease > 0) {
    add("lease",
        fmt::format("{} of {} have no lease of their GPU, so their clocks do not follow the plan: "
                    "{} (start perseus agent there; if it runs, the warnings of these ranks and "
                    "perseus doctor say why)",
                    ranks.without_lease, Counted(ranks.ranks, "rank"),
                    FirstOf(health.nodes_without_lease)));
  }
  const bool is_withdrawn = guard && guard->state == store::GuardState::kWithdrawn;
  if (is_withdrawn && health.training != Training::kEnded) {
    add("withdrawn",
        fmt::format("the plan is taken back, because it cost throughput (measure a new profile: "
                    "perseus tune, or set the target again: perseus job target {})",
                    job.key));
  }
  return needs;
}

}  // namespace perseus::server
