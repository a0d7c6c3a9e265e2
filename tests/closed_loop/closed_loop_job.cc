#include "closed_loop_job.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <thread>

#include "perseus/base/file.h"

namespace perseus {

TrueMean MeanOf(const std::vector<TrueStep>& steps, std::size_t begin, std::size_t end) {
  TrueMean mean;
  const auto count = static_cast<double>(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    mean.time_s += steps[i].time_s / count;
    mean.energy_j += steps[i].energy_j / count;
  }
  double variance = 0;
  for (std::size_t i = begin; i < end; ++i) {
    variance += (steps[i].time_s - mean.time_s) * (steps[i].time_s - mean.time_s) / (count - 1);
  }
  mean.time_error_s = std::sqrt(variance / count);
  return mean;
}

ClosedLoopJob::ClosedLoopJob() = default;

ClosedLoopJob::~ClosedLoopJob() {
  if (trainer_ != 0) EndTrainer();
  for (const pid_t agent : agents_) kill(agent, SIGTERM);
  for (const pid_t agent : agents_) Comes([agent] { return HasEnded(agent); });
}

bool ClosedLoopJob::Comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

// It is the shell's child, not ours: who comes to reap it, and when, is not known.
bool ClosedLoopJob::HasEnded(pid_t process) {
  const auto stat = ReadFile("/proc/" + std::to_string(process) + "/stat");
  return !stat || stat->find(") Z ") != std::string::npos;
}

pid_t ClosedLoopJob::StartInBackground(const std::string& command) const {
  return std::stoi(RunWell(command + " & echo $!"));
}

void ClosedLoopJob::SetUpNodes(const std::string& schedule, int microbatches,
                               const std::string& synth_flags) {
  RunWell("synth --gpu a100 --stages 4 -o truth.csv " + synth_flags);
  for (const std::string name : {"a", "b"}) {
    Write(name + ".toml", fmt::format("name = \"{}\"\ngpus = {}\nseed = {}\n"
                                      "[gpu]\nprofile = \"truth.csv\"\nblocking_power_w = 84.0\n"
                                      "time_noise = 0.002\npower_noise = 0.005\n"
                                      "[switch_latency]\nmedian_ms = 2.0\nspread = 0.3\n",
                                      name, kGpusOfANode, name == "a" ? 1 : 2));
    agents_.push_back(StartInBackground(
        fmt::format("agent --devices virtual:{0}.toml --socket {0}.sock --state {0}.state.json "
                    "--metrics off 2>{0}.log",
                    name)));
  }
  for (const std::string name : {"a", "b"}) {
    ASSERT_TRUE(Comes([&] { return Run("gpu list --socket " + name + ".sock").status == 0; }))
        << Read(name + ".log");
  }
  Write("job.toml",
        fmt::format(
            "profile = \"truth.csv\"\n[pipeline]\nschedule = \"{}\"\nstages = 4\n"
            "microbatches = {}\nchunks = {}\npipelines = 2\n[gpu]\nblocking_power_w = 84.0\n"
            "switch_latency_ms = 2.0\n",
            schedule, microbatches, synth_flags.find("--chunks 2") != std::string::npos ? 2 : 1));
}

void ClosedLoopJob::StartTrainer(const std::string& flags) {
  trainer_ = StartInBackground(
      "trainer --job job.toml --node a.toml --node b.toml --agent a.sock --agent b.sock "
      "--job-directory run --record record.csv --json " +
      flags + " >trainer.out 2>trainer.err");
}

void ClosedLoopJob::EndTrainer() {
  kill(trainer_, SIGTERM);
  AwaitTrainer();
}

void ClosedLoopJob::AwaitTrainer() {
  EXPECT_TRUE(Comes([this] { return HasEnded(trainer_); })) << Read("trainer.err");
  trainer_ = 0;
}

std::vector<TrueStep> ClosedLoopJob::TrueSteps() const {
  std::istringstream lines(Read("record.csv"));
  std::string line;
  std::getline(lines, line);
  std::vector<TrueStep> steps;
  while (std::getline(lines, line)) {
    TrueStep step;
    EXPECT_EQ(std::sscanf(line.c_str(), "%*d,%*f,%lf,%lf", &step.time_s, &step.energy_j), 2)
        << line;
    steps.push_back(step);
  }
  return steps;
}

VirtualNode ClosedLoopJob::OpenNode(const std::string& name) const {
  auto node = VirtualNode::Open(Directory() / (name + ".toml"));
  if (!node) throw std::runtime_error(node.error().message);
  return *std::move(node);
}

bool ClosedLoopJob::IsAllRestored() const {
  for (const std::string name : {"a", "b"}) {
    const nlohmann::json listing = RunJson("gpu list --socket " + name + ".sock");
    for (const auto& gpu : listing.at("gpus")) {
      if (gpu.at("lease") != "" || gpu.at("is_restoring") == true) return false;
    }
    const VirtualNode node = OpenNode(name);
    for (int gpu = 0; gpu < kGpusOfANode; ++gpu) {
      const auto view = node.Look(gpu);
      if (!view || view->reading.requested_lock || view->reading.lock) return false;
    }
  }
  return true;
}

}  // namespace perseus
