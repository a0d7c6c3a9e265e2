// The spans of a node within the trace of an assignment: when it was applied, and the first step
// that followed it. The server gives the trace with the assignment, and the node reports the spans
// (protocol::NodeSpan).
//
// Pure. Times are since 1970. Not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/node/rank_follower.h"
#include "perseus/runtime/protocol/node_messages.h"

namespace perseus::node {

class AssignmentTrace {
 public:
  // An assignment came. If it has no trace, or a malformed one, nothing is reported about it.
  void Received(const protocol::AssignmentEvent& assignment, Nanoseconds now);
  // The version lies in the job directory. Only the first call for a version counts.
  void Applied(std::int64_t version, Nanoseconds now);
  // All ranks here follow the version.
  void Follows(const RankFollower::Following& following);

  // What the server does not have yet.
  const std::vector<protocol::NodeSpan>& unsent() const { return unsent_; }
  void Sent() { unsent_.clear(); }

 private:
  std::string trace_;  // Empty: nothing to report.
  std::string parent_;
  std::string applied_span_;  // Empty: not applied yet.
  std::string job_;
  std::int64_t version_ = 0;
  Nanoseconds received_ = 0;
  std::vector<protocol::NodeSpan> unsent_;
};

}  // namespace perseus::node
