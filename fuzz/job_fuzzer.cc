// Checks that no TOML makes ParseJob crash or accept a number out of range.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/planning/job/job.h"

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto job = perseus::job::ParseJob(text, "fuzz");
  if (!job) {
    RequireOneLine(job.error());
    return 0;
  }
  const perseus::schedule::FixedInstructions& fixed = job->model.fixed;
  Require(job->schedule.pp_ranks >= 0 && job->schedule.microbatches >= 0);
  Require(job->schedule.chunks >= 1 && job->pipelines >= 1 && job->model.gpus_per_stage >= 1);
  Require(std::isfinite(job->model.blocking_power_w) && job->model.blocking_power_w >= 0);
  Require(job->switch_latency >= 0 && fixed.p2p >= 0);
  for (const auto& cost : {fixed.load, fixed.all_reduce, fixed.optimizer}) {
    Require(cost.time >= 0 && std::isfinite(cost.energy_j));
  }
  Require(!job->schedule_path.empty() + !job->graph_path.empty() + !job->schedule.name.empty() <=
          1);
  return 0;
}
