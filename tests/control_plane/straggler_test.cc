// A GPU that gets slow by itself: the server notices, the other pipeline saves energy meanwhile and
// delays nobody, and all is as before when it is well again.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <iostream>
#include <thread>

#include "tests/control_plane/network.h"
#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

using nlohmann::json;

constexpr double kBlockingPowerW = 84;
constexpr double kNanoseconds = 1e9;

double SecondsSince1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// "2026-01-31T12:00:00.123Z"
double SecondsOf(const std::string& text) {
  std::tm time{};
  double seconds = 0;
  EXPECT_EQ(std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lfZ", &time.tm_year, &time.tm_mon,
                        &time.tm_mday, &time.tm_hour, &time.tm_min, &seconds),
            6)
      << text;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(timegm(&time)) + seconds;
}

class StragglerTest : public ServedJobs {
 protected:
  // A directory for each node, as where they share no file system.
  const ServedJob job_{"run", 2, 4, 6, {{"a", 4, "run-a", 0}, {"b", 4, "run-b", 1}}};

  // The servers run. `in_the_middle` is called when the straggler was noticed.
  void ThrottleAndRecover(const std::function<void()>& in_the_middle);

  double EnergyOf(const virtual_gpu::VirtualNode& node) const {
    double energy_j = 0;
    for (int gpu = 0; gpu < job_.stages; ++gpu) energy_j += node.Look(gpu)->reading.energy_j;
    return energy_j;
  }

  // A pipeline's energy in a step by its GPUs' own counters, over steps under the same assignment.
  struct Measured {
    json assignment;
    Steps steps;
    double energy_j = 0;
  };
  Measured MeasureFirstPipeline(std::size_t stragglers) const {
    constexpr std::int64_t kSteps = 10;
    const virtual_gpu::VirtualNode node = OpenNode("a");
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Steady steady = AwaitSteady(job_.key, 2, stragglers);
      if (HasFailure()) return {};
      Measured measured{steady.job.at("assignment"), {}, 0};
      const std::int64_t first = AwaitEndOfStep(0);
      const double before_j = EnergyOf(node);
      const std::int64_t last = AwaitEndOfStep(first + kSteps);
      measured.energy_j = (EnergyOf(node) - before_j) / static_cast<double>(last - first);
      measured.steps = {static_cast<std::size_t>(first) + 1, static_cast<std::size_t>(last) + 1};
      const json after = Show(job_.key);
      if (after.at("assignment") == measured.assignment) return measured;
    }
    ADD_FAILURE() << "assignment change all the time";
    return {};
  }
  // Until the first pipeline has ended another step, with that number at least; which it was.
  std::int64_t AwaitEndOfStep(std::int64_t number) const {
    protocol::RankLogReader reader(protocol::RankLogPath(Directory() / "run-a", {0, 0, 0}));
    EXPECT_TRUE(reader.SkipToEnd());
    std::int64_t last = -1;
    while (last < number || last < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto records = reader.ReadNew().value();
      for (const protocol::RankRecord& record : records) {
        if (const auto* step = std::get_if<protocol::RanStep>(&record)) last = step->step;
      }
    }
    return last;
  }
  double EpochOf(const std::string& directory, const protocol::RankId& rank) const {
    protocol::RankLogReader reader(protocol::RankLogPath(Directory() / directory, rank));
    return static_cast<double>(reader.SkipToEnd()->header->epoch);
  }
  // Of the second pipeline, that lie between two moments.
  Steps StepsBetween(double begin_s, double end_s) const {
    const double epoch = EpochOf("run-b", {1, 0, 0});
    Steps between;
    for (const protocol::RanStep& step : StepsOf("run-b", {1, 0, 0})) {
      const bool is_between = (static_cast<double>(step.begin) + epoch) / kNanoseconds >= begin_s &&
                              (static_cast<double>(step.end) + epoch) / kNanoseconds <= end_s;
      if (!is_between) continue;
      if (between.end == 0) between.begin = static_cast<std::size_t>(step.step);
      between.end = static_cast<std::size_t>(step.step) + 1;
    }
    return between;
  }
  // What the plans say that the first pipeline draws in a step: its own, and waiting for the
  // slowest.
  double Predicted(const json& assignment) const {
    const json& share = assignment.at("pipelines").at(0);
    const double waits_s = assignment.at("time_s").get<double>() - share.at("time_s").get<double>();
    return share.at("energy_j").get<double>() + job_.stages * kBlockingPowerW * waits_s;
  }
};

TEST_F(StragglerTest, TheOtherPipelineSavesMeanwhileAndNobodyWaitsForIt) {
  StartServer();
  ThrottleAndRecover([] {});
}

// Nodes are at different replicas, and the one that judges the job is cut off in the middle.
TEST_F(StragglerTest, AlsoWithThreeReplicasOfWhichOneIsCutOffMeanwhile) {
  const std::string why_not = Network::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const Network network(kReplicas);
  StartReplicasIn(network);
  ThrottleAndRecover([&] {
    EXPECT_EQ(ReplicaHeardBy("a.node.log"), 0);
    EXPECT_EQ(ReplicaHeardBy("b.node.log"), 1);
    network.Cut(0);
    EXPECT_TRUE(Comes([this] { return ReplicaHeardBy("a.node.log") > 0; }));
  });
}

void StragglerTest::ThrottleAndRecover(const std::function<void()>& in_the_middle) {
  SetUp(job_, "--work-scale 0.4");
  Register(job_, "--profile run.csv");
  StartTrainer(job_);
  StartNodes(job_);
  const Measured before = MeasureFirstPipeline(0);
  ASSERT_GT(before.energy_j, 0);

  const double begins_s = SecondsSince1970();
  ASSERT_TRUE(OpenNode("b").SetThrottle(1, 1005));
  ASSERT_TRUE(Comes([this] { return !Show(job_.key).at("stragglers").empty(); }));
  const json straggler = Show(job_.key).at("stragglers").at(0);
  EXPECT_EQ(straggler.at("dp_rank"), 1);
  EXPECT_EQ(straggler.at("source"), "detected");
  const Steps unnoticed = StepsBetween(begins_s, SecondsOf(straggler.at("starts")));
  EXPECT_LE(unnoticed.end - unnoticed.begin, 3U);

  in_the_middle();
  const Measured during = MeasureFirstPipeline(1);
  ASSERT_GT(during.energy_j, 0);
  EXPECT_NE(during.assignment.at("pipelines").at(0), before.assignment.at("pipelines").at(0));
  EXPECT_EQ(during.assignment.at("pipelines").at(1), before.assignment.at("pipelines").at(1));
  const double predicted = 1 - Predicted(during.assignment) / Predicted(before.assignment);
  const double saved = 1 - during.energy_j / before.energy_j;
  EXPECT_NEAR(saved, predicted, kOnePoint);
  EXPECT_GT(predicted, 3 * kOnePoint) << "a promise that would be kept by doing nothing";

  const double ends_s = SecondsSince1970();
  ASSERT_TRUE(OpenNode("b").SetThrottle(1, std::nullopt));
  const Measured after = MeasureFirstPipeline(0);
  EXPECT_EQ(after.assignment.at("pipelines"), before.assignment.at("pipelines"));
  EndTrainer();

  // While the other pipeline went at its old plan, only the straggler itself made steps longer.
  const Steps throttled = StepsBetween(begins_s, ends_s);
  const std::vector<TrueStep> steps = TrueStepsOf("run.record.csv");
  Steps alone{throttled.begin, throttled.begin};
  const std::vector<protocol::RanStep> ran = StepsOf("run-a", {0, 0, 0});
  while (ran.at(alone.end).version == ran.at(before.steps.begin).version) ++alone.end;
  ASSERT_GE(alone.end, alone.begin + 2);
  const TrueMean by_itself = MeanOf(steps, alone.begin, alone.end);
  const TrueMean meanwhile = MeanOf(steps, during.steps.begin, during.steps.end);
  const double delay = meanwhile.time_s / by_itself.time_s - 1;
  // As in IsAsFast.
  const double noise =
      3 * std::hypot(meanwhile.time_error_s, by_itself.time_error_s) / by_itself.time_s + 0.0052;
  EXPECT_LT(delay, noise);
  std::cout << fmt::format(
      "noticed after {} steps, slowdown {:.3f}; energy of the other pipeline: predicted -{:.2f} %, "
      "measured -{:.2f} %; the job's delay by it {:.2f} % (noise {:.2f} %)\n",
      unnoticed.end - unnoticed.begin, straggler.at("slowdown").get<double>(), predicted * 100,
      saved * 100, delay * 100, noise * 100);
}

}  // namespace
}  // namespace perseus
