// The settings of a session: options, then environment variables, then defaults. Paths are
// absolute, because training may change its directory later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "perseus/runtime/client/perseus.h"
#include "perseus/runtime/client/warnings.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::client {

// The default limit of the size of a rank log, including its older part.
inline constexpr std::uint64_t kMostLogBytes = std::uint64_t{1} << 30;
// The default socket of the node's agent.
inline constexpr const char* kNodesSocket = "/run/perseus/agent.sock";

struct Settings {
  protocol::RankId name;
  std::string gpu;                      // UUID or number; empty: the only one.
  std::string job;                      // 1 to 200 printable bytes.
  std::filesystem::path job_directory;  // Empty: none.
  std::filesystem::path plan;           // Empty: none.
  std::string agent;                    // A socket, "own" or "off".
  std::string devices;                  // For OpenDevices, or "off".
  std::int64_t plan_expires_at = 0;     // Seconds since 1970; 0: never.
  std::vector<int> stages;              // By chunk. Empty if the default numbers hold.
  int pp_ranks = 0;                     // 0: unknown.
  // One warning for each setting that is wrong and not used. The session works without it.
  std::vector<std::string> problems;
  std::uint64_t most_log_bytes = kMostLogBytes;
  WarningOutput warning_output = WarningOutput::kStandardError;
};

// Returns the absolute path. Returns `path` itself if it is empty, or if the current directory is
// unknown.
std::filesystem::path Absolute(const std::filesystem::path& path);

// `options` may be null. With an older ABI, it is shorter: the missing fields count as 0.
Settings SettingsFrom(const perseus_options* options);

}  // namespace perseus::client
