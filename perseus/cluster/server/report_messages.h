// The messages that carry reported steps: from nodes, and from one replica to the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/cluster/server/job_watch.h"

namespace perseus::server {

struct NodeJobReport {
  std::string job;
  std::int64_t acknowledged = 0;
  std::int64_t following = 0;
  std::int64_t since_step = -1;
  std::vector<ReportedStep> steps;
};

// The body of POST /v1/nodes/N/reports.
Answer<std::vector<NodeJobReport>> ReadReports(std::string_view body);

// A message to the replica that judges a job. Has one of: steps, restarted, forgotten.
struct ReplicaMessage {
  std::string replica = {};  // The sender.
  std::string job = {};
  std::string node = {};
  std::vector<ReportedStep> steps = {};  // Reported by `node`.
  bool restarted = false;                // The job counts its steps from 0 again.
  std::optional<int> forgotten = {};     // The dp_rank of a detected straggler that was deleted.
};
// Formats the message as one or more texts of at most Store::kMaxReplicaTextBytes.
std::vector<std::string> FormatReplicaMessage(const ReplicaMessage& heard);
Result<ReplicaMessage> ParseReplicaMessage(std::string_view text);

}  // namespace perseus::server
