#include "perseus/runtime/tuner/run_trace.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Two hosts have clocks that differ by 1,000 s. Each rank runs one forward in its only step.
class RunTraceTest : public testing::Test {
 protected:
  RunTraceTest() {
    std::filesystem::create_directory(directory_ / "ranks");
    Add({0, 0, 0}, 1'000'000'000'000);
    Add({0, 1, 0}, 0);
  }

  void Add(const protocol::RankId& name, Nanoseconds epoch) const {
    protocol::RankHeader header;
    header.name = name;
    header.host = "n7";
    header.pid = 1;
    header.epoch = 5'000'000'000'000'000 + epoch;
    protocol::RanStep step;
    step.step = 3;
    step.assignment_version = 2;
    step.has_plan = has_plan_;
    step.on_plan = on_plan_;
    step.begin = 2'000'000'000'000 - epoch + name.pp_rank * 1'000;
    step.end = step.begin + 50'000'000;
    step.instructions.push_back({InstructionKind::kForward, 4, 0, 1'000, 40'000'001, mhz_});
    step.energy = {{0, 0, 10}, {20'000'000, 20'000'000, 16}, {30'000'000, 30'000'000, 2}};
    step.clocks.push_back({500, 700, 1410, 2});
    std::ofstream(protocol::RankLogPath(directory_, name))
        << protocol::FormatRecord(header) << protocol::FormatRecord(step);
  }
  json Trace(const TraceRange& range, const std::vector<plan_file::PlanFile>& plans) const {
    const auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsOver);
    const auto text = FormatRunTrace(*logs, range, plans);
    return text ? json::parse(*text).at("traceEvents") : json(text.error().Message());
  }
  static const json* Find(const json& events, const std::string& phase, const json& process,
                          const json& name_or_lane) {
    for (const json& event : events) {
      const bool is_it =
          event.value("tid", json()) == name_or_lane || event.at("name") == name_or_lane;
      if (event.at("ph") == phase && event.at("pid") == process && is_it) return &event;
    }
    return nullptr;
  }

  TemporaryDirectory directory_;
  bool has_plan_ = true;
  bool on_plan_ = true;
  int mhz_ = 1410;
};

TEST_F(RunTraceTest, HostsAreAligned) {
  const json events = Trace({0, 9}, {});
  const json* first = Find(events, "X", 1, 0);
  const json* second = Find(events, "X", 1, 64);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(first->at("name"), "F4");
  EXPECT_DOUBLE_EQ(first->at("ts").get<double>(), 1);
  EXPECT_DOUBLE_EQ(first->at("dur").get<double>(), 40'000.001);
  EXPECT_EQ(first->at("args").at("frequency_mhz"), 1410);
  EXPECT_EQ(first->at("args").at("assignment"), 2);
  EXPECT_DOUBLE_EQ(second->at("ts").get<double>(), 2);
}

// Baseline steps, and steps with clocks only, do not follow a plan.
TEST_F(RunTraceTest, StepsSayWhetherTheyFollowAPlan) {
  const auto said = [this](bool has_plan, bool on_plan) {
    has_plan_ = has_plan;
    on_plan_ = on_plan;
    Add({0, 0, 0}, 0);
    const json events = Trace({0, 9}, {});
    return Find(events, "X", 1, 0)->at("args").at("plan").get<std::string>();
  };
  EXPECT_EQ(said(true, true), "followed");
  EXPECT_EQ(said(true, false), "left");
  EXPECT_EQ(said(false, true), "none");
  mhz_ = 0;
  EXPECT_EQ(said(true, true), "none") << "without a lease, it ran at the default clocks";
}

TEST_F(RunTraceTest, ClocksAndPowerAreCounters) {
  const json events = Trace({3, 3}, {});
  const json* requested = Find(events, "C", 1, "pp_rank 1 requested clock");
  const json* applied = Find(events, "C", 1, "pp_rank 1 applied clock");
  const json* power = Find(events, "C", 1, "pp_rank 0 power");
  ASSERT_TRUE(requested != nullptr && applied != nullptr && power != nullptr);
  EXPECT_DOUBLE_EQ(requested->at("ts").get<double>(), 1.5);
  EXPECT_DOUBLE_EQ(applied->at("ts").get<double>(), 1.7);
  EXPECT_EQ(applied->at("args").at("MHz"), 1410);
  EXPECT_NEAR(power->at("args").at("W").get<double>(), 6 / 0.02, 1e-3);
  EXPECT_EQ(std::ranges::count(events, "pp_rank 0 power",
                               [](const json& event) { return event.at("name"); }),
            1)
      << "a smaller value begins a new count";
}

TEST_F(RunTraceTest, EachStepHasItsPlan) {
  plan_file::PlanFile plan;
  plan.target = "no slowdown";
  plan_file::PlannedInstruction planned;
  planned.microbatch = 4;
  planned.frequency_mhz = 900;
  planned.start = 2'000;
  planned.duration = 3'000;
  plan.pp_ranks.push_back({"rank 0", {planned}});
  plan_file::PlanFile straggling = plan;
  straggling.target = "straggler 1.25";
  const json events = Trace({3, 3}, {plan, straggling});
  const json* slice = Find(events, "X", 1'000'000, 0);
  ASSERT_NE(slice, nullptr);
  EXPECT_DOUBLE_EQ(slice->at("ts").get<double>(), 2);
  EXPECT_EQ(slice->at("args").at("frequency_mhz"), 900);
  EXPECT_NE(Find(events, "X", 1'000'001, 0), nullptr);
}

TEST_F(RunTraceTest, StepsWithoutRecordsAreNamed) {
  EXPECT_THAT(Trace({4, 9}, {}).get<std::string>(),
              HasSubstr("no rank has recorded a step from 4 to 9 (the logs have 3 to 3)"));
}

}  // namespace
}  // namespace perseus::tuner
