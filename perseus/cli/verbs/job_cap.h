// `perseus job cap` divides a power cap among jobs of a server.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

struct CapFlags {
  std::vector<std::string> jobs;  // Keys or ids.
  double power_w = 0;
  std::optional<std::int64_t> until_s;  // Since 1970.
  bool only_shows = false;
};
void AddCapFlags(CLI::App& verb, CapFlags& flags);

// Reads the frontiers of the jobs, divides the cap (planning/power_share), and sets a power cap as
// the target of each job. If anything is wrong with a job, no target changes. If the server refuses
// a target, the other jobs get theirs, and the error says which did not.
Result<void> CapJobs(const Streams& streams, ServerClient& server, const CapFlags& flags,
                     bool as_json);

}  // namespace perseus::cli
