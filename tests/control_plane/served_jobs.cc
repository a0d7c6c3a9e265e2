#include "tests/control_plane/served_jobs.h"

#include <fmt/core.h>

#include <csignal>
#include <set>

namespace perseus {

using nlohmann::json;

void ServedJobs::SetUp(const ServedJob& job, const std::string& synth_flags) {
  RunWell(
      fmt::format("synth --gpu a100 --stages {} -o {}.csv {}", job.stages, job.key, synth_flags));
  int seed = 1;
  for (const ServedJob::Node& node : job.nodes) {
    StartAgent({node.name, node.gpus, job.key + ".csv", seed++});
  }
  for (const ServedJob::Node& node : job.nodes) AwaitAgent(node.name);
  Write(job.key + ".toml",
        fmt::format("profile = \"{}.csv\"\n[pipeline]\nschedule = \"1f1b\"\npp_ranks = {}\n"
                    "microbatches = {}\npipelines = {}\n[gpu]\nblocking_power_w = 84.0\n"
                    "switch_latency_ms = 2.0\n",
                    job.key, job.stages, job.microbatches, job.pipelines));
}

void ServedJobs::Register(const ServedJob& job, const std::string& flags) {
  RunWell(fmt::format("job register {0} --job {0}.toml {1} {2}", job.key, server(), flags));
}

void ServedJobs::StartTrainer(const ServedJob& job) {
  std::string nodes;
  for (const ServedJob::Node& node : job.nodes) {
    nodes += fmt::format("--node {0}.toml --agent {0}.sock --job-directory {1} ", node.name,
                         node.directory);
  }
  trainers_[job.key] = Start(fmt::format(
      "trainer --job {0}.toml {1} --record {0}.record.csv --timeout 300 --json >{0}.out 2>{0}.err",
      job.key, nodes));
}

void ServedJobs::EndTrainer() {
  for (const auto& [key, trainer] : trainers_) {
    Kill(trainer, SIGTERM);
    EXPECT_EQ(Read(key + ".err"), "");
  }
  trainers_.clear();
}

void ServedJobs::StartNodes(const ServedJob& job) {
  std::set<std::string> watched;
  for (const ServedJob::Node& node : job.nodes) {
    if (!watched.insert(node.directory).second) continue;
    Start(fmt::format("node --name {0} --job {1}={2} {3} 2>{0}.node.log", node.name, job.key,
                      node.directory, " --server " + urls(node.server)));
  }
}

json ServedJobs::Show(const std::string& key) const {
  return RunJson("job show " + key + server());
}

void ServedJobs::AwaitStep(const std::string& key, std::int64_t step) const {
  EXPECT_TRUE(Comes([&] { return Show(key).at("last_step").get<std::int64_t>() >= step; }))
      << Read(key + ".err");
}

ServedJobs::Steady ServedJobs::AwaitSteady(const std::string& key, std::size_t count,
                                           std::size_t stragglers) const {
  Steady steady;
  std::int64_t version = 0;
  const auto is_steady = [&] {
    json job = Show(key);
    std::int64_t since = 0;
    // During a trial of the default clocks, the assignment has no plans. Before its first node
    // reports, a job may already have plans.
    bool is_followed = !job["nodes"].empty() && job.contains("assignment") &&
                       !job["assignment"]["pipelines"].empty() && job["planning"] == "done" &&
                       job["stragglers"].size() == stragglers;
    for (const json& node : job["nodes"]) {
      is_followed = is_followed && node["state"] == "following";
      since = std::max(since, node["since_step"].get<std::int64_t>());
    }
    if (!is_followed) return version = 0, false;
    if (job["assignment_version"] != version) {
      version = job["assignment_version"];
      // The step in which clocks change does not count.
      const auto begin =
          static_cast<std::size_t>(std::max(since, job["last_step"].get<std::int64_t>())) + 1;
      steady.steps = {begin, begin + count};
    }
    const bool is_reached = job["last_step"] >= steady.steps.end;
    steady.job = std::move(job);
    return is_reached;
  };
  if (Comes(is_steady) || Comes(is_steady)) return steady;
  ADD_FAILURE() << "job " << key << " did not run " << count << " steps under one assignment\n"
                << steady.job.dump(1) << "\n"
                << Read("serve.log") << Read("serve0.log");
  return {};
}

std::vector<protocol::RanStep> ServedJobs::StepsOf(const std::string& directory,
                                                   const protocol::RankId& rank) const {
  protocol::RankLogReader reader(protocol::RankLogPath(Directory() / directory, rank));
  const auto records = reader.ReadNew();
  EXPECT_TRUE(records) << records.error().Message();
  std::vector<protocol::RanStep> steps;
  for (const protocol::RankRecord& record :
       records ? *records : std::vector<protocol::RankRecord>()) {
    if (const auto* step = std::get_if<protocol::RanStep>(&record)) steps.push_back(*step);
  }
  return steps;
}

}  // namespace perseus
