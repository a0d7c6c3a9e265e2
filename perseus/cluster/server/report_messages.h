// The messages that carry reported steps: from nodes, and from one replica to the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/runtime/protocol/node_messages.h"

namespace perseus::server {

// The body of POST /v1/nodes/N/reports.
Answer<std::vector<protocol::JobReport>> ReadReports(std::string_view body);

// A message to the replica that judges a job. Has one of: steps, restarted, forgotten.
struct ReplicaMessage {
  std::string replica = {};  // The sender.
  std::string job = {};
  std::string node = {};
  std::vector<protocol::StepReport> steps = {};  // Reported by `node`.
  bool restarted = false;                        // The job counts its steps from 0 again.
  std::optional<int> forgotten = {};  // The dp_rank of a detected straggler that was deleted.
};
// Formats the message as one or more texts of at most Store::kMaxReplicaTextBytes.
std::vector<std::string> FormatReplicaMessage(const ReplicaMessage& message);
Result<ReplicaMessage> ParseReplicaMessage(std::string_view text);

}  // namespace perseus::server
