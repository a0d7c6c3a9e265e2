#include "perseus/cluster/telemetry/node_ranks.h"

#include "perseus/cluster/node_messages/node_messages.h"

namespace perseus::telemetry {

Result<NodeRanks> ParseNodeRanks(std::string_view json) {
  const auto list = protocol::ParseRanks(json);
  if (!list) {
    return FailAs(ErrorKind::kSystem, "the database is damaged: {}", list.error().message);
  }
  NodeRanks ranks;
  for (const protocol::AttachedRank& rank : *list) {
    ranks[rank.name.dp_rank].insert(rank.name.pp_rank);
  }
  return ranks;
}

}  // namespace perseus::telemetry
