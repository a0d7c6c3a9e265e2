// Reported steps: the body that a node sends, and the messages from one replica to another.
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

// Of POST /v1/nodes/N/reports.
Answer<std::vector<protocol::JobReport>> ReadReports(std::string_view body);

// What one replica hears of a job that another judges. One of the three.
struct HeardOfJob {
  std::string replica = {};  // Whose it is.
  std::string job = {};
  std::string node = {};
  std::vector<protocol::StepReport> steps = {};  // Of `node`.
  bool begins_anew = false;                      // Its steps count from lower numbers again.
  std::optional<int> forgotten = {};  // A pipeline whose detected slowdown was taken back.
};
// As many texts as it takes, each of Store::kMaxReplicaTextBytes bytes at most.
std::vector<std::string> FormatHeard(const HeardOfJob& heard);
Result<HeardOfJob> ParseHeard(std::string_view text);

}  // namespace perseus::server
