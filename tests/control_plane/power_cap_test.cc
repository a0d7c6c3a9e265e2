// Two jobs share a power cap. The energy counters of the virtual GPUs must show that both together
// keep it, and leave less than 1 % of it unused. The profile of one job is wrong.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <iostream>
#include <sstream>

#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

using nlohmann::json;

class PowerCapTest : public ServedJobs {
 protected:
  json Cap(double power_w, const std::string& flags) const {
    return RunJson(
        fmt::format("job cap large small --power {:.1f}W {} --server {}", power_w, flags, url(0)));
  }
  // Writes a profile that says 5 % less energy than the GPUs of the job need.
  void WriteLowProfile(const std::string& key) const {
    std::istringstream truth(Read(key + ".csv"));
    std::string low;
    std::string line;
    std::getline(truth, line);
    EXPECT_TRUE(line.ends_with(",energy")) << line;
    low += line + "\n";
    while (std::getline(truth, line)) {
      const std::size_t comma = line.rfind(',') + 1;
      low += fmt::format("{}{}\n", line.substr(0, comma), 0.95 * std::stod(line.substr(comma)));
    }
    Write(key + ".low.csv", low);
  }
  // The mean power of all GPUs of the job in these steps.
  double MeasuredPower(const std::string& key, const Steps& steps) const {
    const TrueMean mean = MeanOf(TrueStepsOf(key + ".record.csv"), steps.begin, steps.end);
    return mean.energy_j / mean.time_s;
  }
};

TEST_F(PowerCapTest, TwoJobsDrawTheirCap) {
  StartServer();
  const ServedJob large{"large", 2, 4, 6, {{"a", 4, "run-large"}, {"b", 4, "run-large"}}};
  const ServedJob small{"small", 1, 4, 8, {{"c", 4, "run-small"}}};
  for (const ServedJob& job : {large, small}) {
    SetUp(job, "--work-scale 0.4");
    WriteLowProfile(job.key);
    const char* profile = job.key == "small" ? "low.csv" : "csv";
    Register(job, fmt::format("--profile {}.{}", job.key, profile));
    StartNodes(job);
    StartTrainer(job);
  }
  for (const ServedJob& job : {large, small}) AwaitSteady(job.key, 30);
  ASSERT_FALSE(HasFailure());
  double now_w = 0;
  const json before = Cap(1e6, "--dry-run");
  for (const json& job : before["jobs"]) now_w += job["now_w"].get<double>();
  const double cap_w = 0.85 * now_w;
  Cap(cap_w, "--until 12h");
  const Steps of_large = AwaitSteady("large", 30).steps;
  const Steps of_small = AwaitSteady("small", 30).steps;
  // The power was measured under the cap. So the second division is right for the real power.
  const json again = Cap(cap_w, "--until 12h");
  const Steps later_large = AwaitSteady("large", 30).steps;
  const Steps later_small = AwaitSteady("small", 30).steps;
  EndTrainer();
  const double first_w = MeasuredPower("large", of_large) + MeasuredPower("small", of_small);
  const double second_w = MeasuredPower("large", later_large) + MeasuredPower("small", later_small);
  std::cout << fmt::format(
                   "without a cap {:.1f} W, cap {:.1f} W, measured {:.1f} W ({:+.2f} %), then "
                   "{:.1f} W ({:+.2f} %)\n",
                   now_w, cap_w, first_w, 100 * (first_w / cap_w - 1), second_w,
                   100 * (second_w / cap_w - 1))
            << before.dump(1) << again.dump(1) << "\n";
  // The mean of 30 steps of 12 noisy GPUs.
  constexpr double kNoise = 0.002;
  for (const double measured_w : {first_w, second_w}) {
    EXPECT_LE(measured_w, (1 + kNoise) * cap_w);
    EXPECT_GE(measured_w, 0.99 * cap_w);
  }
}

}  // namespace
}  // namespace perseus
