#include "tests/closed_loop/closed_loop_job.h"

#include <fmt/core.h>

#include <csignal>

namespace perseus {

void ClosedLoopJob::SetUpNodes(const std::string& schedule, int microbatches,
                               const std::string& synth_flags, const GpuType& type,
                               const std::string& keys_of_b) {
  RunWell(fmt::format("synth {} --stages 4 -o truth.csv {}", type.synth, synth_flags));
  StartAgent({.name = "a", .gpus = kGpusOfANode, .seed = 1, .type = type});
  StartAgent({.name = "b", .gpus = kGpusOfANode, .seed = 2, .type = type, .keys = keys_of_b});
  for (const std::string name : {"a", "b"}) AwaitAgent(name);
  Write("job.toml",
        fmt::format(
            "profile = \"truth.csv\"\n[pipeline]\nschedule = \"{}\"\npp_ranks = 4\n"
            "microbatches = {}\nchunks = {}\npipelines = 2\n[gpu]\nblocking_power_w = {:.1f}\n"
            "switch_latency_ms = {:.1f}\n",
            schedule, microbatches, synth_flags.find("--chunks 2") != std::string::npos ? 2 : 1,
            type.blocking_power_w, type.switch_latency_ms));
}

void ClosedLoopJob::StartTrainer(const std::string& flags) {
  trainer_ = Start(
      "trainer --job job.toml --node a.toml --node b.toml --agent a.sock --agent b.sock "
      "--job-directory run --record record.csv --timeout 300 --json " +
      flags + " >trainer.out 2>trainer.err");
}

void ClosedLoopJob::EndTrainer() {
  kill(trainer_, SIGTERM);
  AwaitTrainer();
}

void ClosedLoopJob::AwaitTrainer() {
  EXPECT_TRUE(Comes([this] { return HasEnded(trainer_); })) << Read("trainer.err");
}

bool ClosedLoopJob::IsAllRestored() const {
  for (const std::string name : {"a", "b"}) {
    const nlohmann::json listing = RunJson("gpu list --socket " + name + ".sock");
    for (const auto& gpu : listing.at("gpus")) {
      if (gpu.at("lease") != "" || gpu.at("is_restoring") == true) return false;
    }
    const virtual_gpu::VirtualNode node = OpenNode(name);
    for (int gpu = 0; gpu < kGpusOfANode; ++gpu) {
      const auto view = node.Look(gpu);
      if (!view || view->reading.requested_lock || view->reading.lock) return false;
    }
  }
  return true;
}

}  // namespace perseus
