// The nodes of a job, as the store keeps them.
#pragma once

#include <map>
#include <set>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::telemetry {

// The pp_ranks of a node, by dp_rank.
using NodeRanks = std::map<int, std::set<int>>;
// Parses NodeRecord::ranks. kSystem if the text is malformed: the database is damaged.
Result<NodeRanks> ParseNodeRanks(std::string_view json);

// A node that has reported nothing for this long is lost. A process that has not renewed its claim
// for this long loses the name of its node.
inline constexpr store::Milliseconds kNodeIsSilentAfter = 15'000;

}  // namespace perseus::telemetry
