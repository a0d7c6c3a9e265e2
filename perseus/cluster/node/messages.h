// What a node and the server tell each other (docs/server.md, "Nodes"), as values: no network here.
//
// A server that is newer may say more than is known here; that is passed over. What is known has to
// be right.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::node {

// "p-" and 16 hexadecimal digits: fit to be a file's name.
bool IsPlanId(std::string_view text);

// ---- From the server ----

struct JobAssignment {
  std::string job;  // The server's id.
  std::string key;  // The user's.
  std::int64_t version = 1;
  std::int64_t from_step = 0;
  std::map<int, std::string> plans;  // Ids, by pipeline; none: the GPUs' own clocks.
  std::string reason;
  // Plan files by id, of those named here and of those likely to be next. Of each at least all
  // instructions of the ranks that the node has attached; it may lack those of others.
  std::map<std::string, std::string> files = {};
  std::vector<std::string> upcoming = {};  // Ids of plans likely to be next.
  friend bool operator==(const JobAssignment&, const JobAssignment&) = default;
};
struct JobEnded {
  std::string job;
  friend bool operator==(const JobEnded&, const JobEnded&) = default;
};
// Empty: of a kind that is not known here.
using NodeEvent = std::variant<std::monostate, JobAssignment, JobEnded>;
Result<NodeEvent> ParseNodeEvent(const http::Event& event);

// The job's id in the answer to attaching; empty if the answer does not say.
std::string JobOfAnswer(std::string_view body);

// Of the answer to reports: the jobs, as they were named there, that this node has no ranks of,
// says the server; they may have ended.
std::set<std::string> NotAttachedOfAnswer(std::string_view body);

// Whether a problem is that another process has this node's name,
bool IsOfInstance(const http::Response& problem);
// or that no such job runs.
bool IsOfNoJob(const http::Response& problem);

// ---- To the server ----

// `restarted`: the job's steps count from lower numbers than before. `instance` may be empty.
std::string FormatRanks(std::span<const protocol::RankHeader> ranks, bool restarted,
                        const std::string& instance);

// What a step took on one node, of the ranks of one pipeline that are there.
struct StepReport {
  std::int64_t step = 0;
  int pipeline = 0;
  double time_s = 0;  // From the end of the step before to its own; of a first one from its begin.
  double busy_s = 0;  // From its begin to the end of the last computation.
  std::optional<double> energy_j;  // Of all these ranks' GPUs in time_s; if every counter tells it.
  std::int64_t version = 0;  // Of the server's assignment, the least that was followed; 0: none.
  int ranks = 0;
  friend bool operator==(const StepReport&, const StepReport&) = default;
};
struct JobReport {
  std::string job;
  std::int64_t acknowledged = 0;  // Lies in the job's directory.
  std::int64_t following = 0;     // What all ranks here follow; 0: nothing of the server's,
  std::int64_t since_step = -1;   // from which step on.
  std::vector<StepReport> steps;
};
std::string FormatReports(std::span<const JobReport> jobs);

}  // namespace perseus::node
