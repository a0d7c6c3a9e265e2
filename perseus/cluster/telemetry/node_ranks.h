// Reads the nodes of a job from the store's records.
#pragma once

#include <map>
#include <set>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/cluster/store/store.h"

namespace perseus::telemetry {

// The pp_ranks of a node, by dp_rank.
using NodeRanks = std::map<int, std::set<int>>;
// Parses NodeRecord::ranks. Fails (kSystem) if the text is malformed, because then the database is
// damaged.
inline Result<NodeRanks> ParseNodeRanks(std::string_view json) {
  const auto list = protocol::ParseRanks(json);
  if (!list) {
    return FailAs(ErrorKind::kSystem, "the database is damaged: {}", list.error().Message());
  }
  NodeRanks ranks;
  for (const protocol::AttachedRank& rank : *list) {
    ranks[rank.name.dp_rank].insert(rank.name.pp_rank);
  }
  return ranks;
}

// If a node has reported nothing for this time, it counts as lost. If a process has not renewed its
// claim for this time, the process loses the name of its node.
inline constexpr Milliseconds kNodeIsSilentAfter = 15'000;

}  // namespace perseus::telemetry
