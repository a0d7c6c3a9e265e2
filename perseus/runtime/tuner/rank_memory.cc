#include "perseus/runtime/tuner/rank_memory.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/json_file.h"
#include "perseus/base/limits.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::tuner {
namespace {

using json_file::Node;

constexpr std::string_view kEnding = ".memory.json";
constexpr int kDeepest = 3;

struct OneRank {
  std::vector<std::int64_t> activations;  // [chunk]
  std::int64_t model = 0;
  std::int64_t peak = 0;
};

std::int64_t ReadBytes(const Node& node) {
  return static_cast<std::int64_t>(node.Number(0, profile::kMostMemoryBytes, "bytes"));
}

OneRank ReadOne(const Node& node) {
  node.Member("perseus_rank_memory").Count(1, 1, "the version 1");
  OneRank rank;
  const Node activations = node.Member("activation_bytes");
  const std::size_t chunks = activations.ListSize();
  if (chunks == 0 || chunks > std::size_t{kMostChunks}) {
    json_file::ThrowAt(activations.path, "has {} chunks (expected 1 to {})", chunks, kMostChunks);
  }
  for (std::size_t i = 0; i < chunks; ++i) rank.activations.push_back(ReadBytes(activations[i]));
  rank.model = ReadBytes(node.Member("model_bytes"));
  rank.peak = ReadBytes(node.Member("peak_bytes"));
  return rank;
}

}  // namespace

Result<std::optional<RankMemory>> ReadRankMemory(const std::filesystem::path& job_directory) {
  PERSEUS_ASSIGN_OR_RETURN(const auto files, protocol::FindRankFiles(job_directory, kEnding));
  std::map<std::pair<int, int>, profile::StageMemory::Part> parts;
  RankMemory memory;
  for (const auto& [rank, path] : files) {
    PERSEUS_ASSIGN_OR_RETURN(
        const auto text,
        protocol::ReadJobFile(job_directory, path.lexically_relative(job_directory)));
    PERSEUS_ASSIGN_OR_RETURN(const OneRank one,
                             json_file::Read(text, path.string(), kDeepest, ReadOne));
    for (std::size_t i = 0; i < one.activations.size(); ++i) {
      const int chunk = static_cast<int>(i);
      profile::StageMemory::Part& part = parts[{rank.pp_rank, chunk}];
      part.pp_rank = rank.pp_rank;
      part.chunk = chunk;
      // An empty optional is less than any value.
      part.activation_bytes = std::max(part.activation_bytes, std::optional(one.activations[i]));
      part.model_bytes =
          std::max(part.model_bytes, std::optional<std::int64_t>(chunk == 0 ? one.model : 0));
    }
    memory.peak_bytes = std::max(memory.peak_bytes, one.peak);
  }
  if (parts.empty()) return std::nullopt;
  memory.stages.source = profile::MemorySource::kMeasured;
  for (const auto& [key, part] : parts) memory.stages.parts.push_back(part);
  return memory;
}

}  // namespace perseus::tuner
