// The messages that replicas send to the replica that judges a job (node_reports.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/node_messages/node_messages.h"

namespace perseus::telemetry {

// A message. It has either steps, or `restarted` is set.
struct ReplicaMessage {
  std::string replica = {};  // The sender.
  std::string job = {};
  std::string node = {};
  std::vector<protocol::StepReport> steps = {};  // The steps that `node` reported.
  bool restarted = false;                        // The job counts its steps from 0 again.
};
// Formats the message as one or more texts of at most Store::kMaxReplicaTextBytes.
std::vector<std::string> FormatReplicaMessage(const ReplicaMessage& message);
Result<ReplicaMessage> ParseReplicaMessage(std::string_view text);

}  // namespace perseus::telemetry
