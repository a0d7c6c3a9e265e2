#include "perseus/runtime/protocol/job_directory/rank_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"
#include "perseus/base/number.h"

namespace perseus::protocol {

std::string Name(const RankId& name) {
  return fmt::format("dp{}-pp{}-tp{}", name.dp_rank, name.pp_rank, name.tp_rank);
}

std::optional<RankId> ParseRankId(const std::string& name) {
  RankId parsed;
  int length = 0;
  if (std::sscanf(name.c_str(), "dp%d-pp%d-tp%d%n", &parsed.dp_rank, &parsed.pp_rank,
                  &parsed.tp_rank, &length) != 3 ||
      static_cast<std::size_t>(length) != name.size() || Name(parsed) != name ||
      std::min({parsed.dp_rank, parsed.pp_rank, parsed.tp_rank}) < 0) {
    return std::nullopt;
  }
  return parsed;
}

RankId ReadRankId(const json_file::Node& node, const HighestRanks& highest) {
  RankId name;
  name.dp_rank = node.Member("dp_rank").Count(0, highest.dp_rank, "a dp_rank, from 0");
  name.pp_rank = node.Member("pp_rank").Count(0, highest.pp_rank, "a pp_rank, from 0");
  if (node.Has("tp_rank")) {
    name.tp_rank = node.Member("tp_rank").Count(0, highest.tp_rank, "a tp_rank, from 0");
  }
  return name;
}

int ReadDpRankKey(const json_file::Node& plans, std::string_view key) {
  const auto dp_rank = ParseNumber<int>(key);
  if (!dp_rank || *dp_rank < 0 || *dp_rank > HighestRanks().dp_rank ||
      fmt::to_string(*dp_rank) != key) {
    json_file::Throw("{} has {}, which is not a dp_rank (expected a number such as \"0\")",
                     plans.path, Excerpt(key));
  }
  return *dp_rank;
}

}  // namespace perseus::protocol
