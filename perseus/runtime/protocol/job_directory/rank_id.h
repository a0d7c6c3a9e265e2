// Identifies a training process of a job by (dp_rank, pp_rank, tp_rank), in code, in text and in
// JSON.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/limits.h"

namespace perseus::json_file {
struct Node;
}  // namespace perseus::json_file

namespace perseus::protocol {

struct RankId {
  int dp_rank = 0;  // The number of the pipeline.
  int pp_rank = 0;  // The position along the pipeline.
  int tp_rank = 0;  // The number among the GPUs that share the work of one pp_rank.
  friend auto operator<=>(const RankId&, const RankId&) = default;
};

// "dp0-pp3-tp0"
std::string Name(const RankId& name);
std::optional<RankId> ParseRankId(const std::string& name);

// The highest valid numbers.
struct HighestRanks {
  int dp_rank = kHighestRank;
  int pp_rank = kHighestRank;
  int tp_rank = kHighestRank;
};

// The functions below throw an Error; call them inside json_file::Read.

// Reads the members dp_rank, pp_rank and tp_rank (0 if tp_rank is absent).
RankId ReadRankId(const json_file::Node& node, const HighestRanks& highest = {});
// Returns the dp_rank that `key` of the object `plans` names: "12", but not "012".
int ReadDpRankKey(const json_file::Node& plans, std::string_view key);

}  // namespace perseus::protocol
