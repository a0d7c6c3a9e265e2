#include "tests/support/training_fixture.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
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

void ExpectPromiseKept(const Promise& promise, const std::vector<TrueStep>& steps,
                       const Steps& before, const Steps& after) {
  ASSERT_LE(after.end, steps.size());
  const TrueMean baseline = MeanOf(steps, before.begin, before.end);
  const TrueMean planned = MeanOf(steps, after.begin, after.end);
  const double saving = 1 - planned.energy_j / baseline.energy_j;
  const double slowdown = planned.time_s / baseline.time_s - 1;
  // The limit has three parts.
  // (1) Three standard errors of the difference, from the variation of the steps.
  // (2) With noise, a plan without slack waits for the slowest of many paths, where the baseline
  //     waits for one path. Suppose each of k paths has an error of s. Then the slowest path is
  //     about s sqrt(2 ln k) late. 4 ranks with 0.05 to 0.15 % (sweep_plan.h) give at most 0.25 %.
  // (3) A clock switch takes effect after 2 ms in the median, with a spread of 0.3. The mean is
  //     2.1 ms, with a deviation of 0.6 ms. An instruction that waits for a switch loses a quarter
  //     of this time. Over the 16 switches of a path, this is 0.4 ms. On the latest of four paths,
  //     0.25 * 0.6 ms * sqrt(16) * sqrt(2 ln 4) = 1 ms is added. Together, this is 0.27 % of half
  //     a second.
  const double noise =
      3 * std::hypot(planned.time_error_s, baseline.time_error_s) / baseline.time_s + 0.0052;
  std::cout << fmt::format(
      "saving: promised {:.2f} %, measured {:.2f} %; slowdown: promised {:.2f} %, measured "
      "{:.2f} % (noise {:.2f} %); baseline step {:.4f} s, predicted {:.4f} s\n",
      promise.saving * 100, saving * 100, (promise.time_s / promise.baseline_time_s - 1) * 100,
      slowdown * 100, noise * 100, baseline.time_s, promise.baseline_time_s);
  EXPECT_NEAR(saving, promise.saving, promise.saving_tolerance);
  EXPECT_GT(promise.saving, 3 * kOnePoint) << "too small a promise: doing nothing would keep it";
  EXPECT_LT(slowdown, noise);
}

TrainingFixture::~TrainingFixture() {
  for (auto process = started_.rbegin(); process != started_.rend(); ++process) {
    if (HasEnded(*process)) continue;
    kill(*process, SIGTERM);
    EXPECT_TRUE(Comes([process] { return HasEnded(*process); }));
  }
}

pid_t TrainingFixture::Start(const std::string& command, const std::string& in_front) {
  const std::string line = fmt::format("cd '{}' && exec {} '" PERSEUS_PROGRAM "' {}",
                                       Directory().string(), in_front, command);
  const pid_t process = fork();
  if (process == 0) {
    // The process ends when a test is killed. Otherwise ctest would wait for the process.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  EXPECT_GT(process, 0);
  started_.push_back(process);
  return process;
}

void TrainingFixture::Kill(pid_t process, int signal) {
  kill(process, signal);
  EXPECT_TRUE(Comes([process] { return HasEnded(process); }));
}

std::string TrainingFixture::AwaitAddress(const std::string& log) const {
  const std::string before = "listening on ";
  std::string text;
  EXPECT_TRUE(Comes([&] {
    text = ReadFile(Directory() / log).value_or("");
    return text.find(before) != std::string::npos && text.ends_with('\n');
  })) << text;
  const std::size_t found = text.find(before);
  if (found == std::string::npos) return "";
  const std::size_t begin = found + before.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

bool TrainingFixture::Comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

// Nobody waits for the process, so it stays a zombie until the test ends.
bool TrainingFixture::HasEnded(pid_t process) {
  const auto stat = ReadFile("/proc/" + std::to_string(process) + "/stat");
  return !stat || stat->find(") Z ") != std::string::npos;
}

void TrainingFixture::StartAgent(const NodeSpec& spec) {
  const std::string power_limit =
      spec.type.power_limit_w == 0
          ? ""
          : fmt::format("power_limit_w = {:.1f}\nmost_power_limit_w = 700.0\n",
                        spec.type.power_limit_w);
  Write(
      spec.name + ".toml",
      fmt::format("name = \"{}\"\ngpus = {}\nseed = {}\nclock = \"{}\"\n"
                  "[gpu]\nprofile = \"{}\"\nblocking_power_w = {:.1f}\n{}{}{}"
                  "[switch_latency]\nmedian_ms = {:.1f}\nspread = 0.3\n",
                  spec.name, spec.gpus, spec.seed, kClock, spec.profile, spec.type.blocking_power_w,
                  spec.type.keys, power_limit, spec.keys, spec.type.switch_latency_ms));
  Start(
      fmt::format("agent --devices virtual:{0}.toml --socket {0}.sock --state {0}.state.json "
                  "--metrics off 2>{0}.log",
                  spec.name));
}

void TrainingFixture::AwaitAgent(const std::string& name) const {
  EXPECT_TRUE(Comes([&] { return Run("gpu list --socket " + name + ".sock").status == 0; }))
      << Read(name + ".log");
}

virtual_gpu::VirtualNode TrainingFixture::OpenNode(const std::string& name) const {
  auto node = virtual_gpu::VirtualNode::Open(Directory() / (name + ".toml"));
  if (!node) throw std::runtime_error(node.error().Message());
  return *std::move(node);
}

std::vector<TrueStep> TrainingFixture::TrueStepsOf(const std::string& record) const {
  std::istringstream lines(Read(record));
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

}  // namespace perseus
