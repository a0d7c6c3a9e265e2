// Tests of FormatTrace: it writes valid JSON, and slices and counters agree with the evaluation.
#include "perseus/planning/report/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/planning_jobs.h"

namespace perseus::report {
namespace {

using nlohmann::json;

constexpr double kMicrosecondsPerSecond = 1e6;

class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    graph_ = MakeSyntheticJob(
        {.stages = 3,
         .microbatches = 4,
         .fixed = {.load = {}, .all_reduce = {.time = 5'000'000, .energy_j = 1}, .optimizer = {}}});
    std::vector<int> slower = schedule::BaselineOptions(graph_);
    for (std::size_t i = 0; i < slower.size(); i += 2) {
      if (IsComputation(graph_.options_of(static_cast<int>(i)).kind)) ++slower[i];
    }
    const plan::Evaluator evaluator(graph_, {80, 0});
    for (const auto& options : {schedule::BaselineOptions(graph_), slower}) {
      timelines_.push_back({"\"quoted\"", options, evaluator.Evaluate(options)});
    }
    trace_ = json::parse(FormatTrace(graph_, 80, timelines_));
  }

  // The events with that phase of the process `index` + 1.
  std::vector<json> Events(const char* phase, std::size_t index) const {
    std::vector<json> events;
    for (const json& event : trace_["traceEvents"]) {
      if (event["ph"] == phase && event["pid"] == index + 1) events.push_back(event);
    }
    return events;
  }

  schedule::InstructionGraph graph_;
  std::vector<Timeline> timelines_;
  json trace_;
};

TEST_F(TraceTest, SlicesAreTheInstructions) {
  for (std::size_t p = 0; p < timelines_.size(); ++p) {
    const plan::Evaluation& evaluation = timelines_[p].evaluation;
    double energy_j = 0;
    double end_us = 0;
    std::map<int, double> free_us;  // [pp_rank] the end of its last slice.
    for (const json& slice : Events("X", p)) {
      const int rank = slice["tid"];
      // The tolerance is half a nanosecond: decimals are exact in text, but not as doubles.
      EXPECT_GE(slice["ts"].get<double>() + 0.0005, free_us[rank]) << "slices overlap";
      free_us[rank] = slice["ts"].get<double>() + slice["dur"].get<double>();
      end_us = std::max(end_us, free_us[rank]);
      energy_j += slice["args"]["energy_j"].get<double>();
    }
    EXPECT_EQ(Events("X", p).size(), graph_.instructions.size());
    EXPECT_DOUBLE_EQ(end_us / kMicrosecondsPerSecond, ToSeconds(evaluation.time));
    EXPECT_DOUBLE_EQ(energy_j, evaluation.instruction_energy_j);
  }
}

TEST_F(TraceTest, PowerOverTimeIsTheEnergy) {
  for (std::size_t p = 0; p < timelines_.size(); ++p) {
    const std::vector<json> counters = Events("C", p);
    double energy_j = 0;
    for (std::size_t i = 0; i + 1 < counters.size(); ++i) {
      const double lasts_us = counters[i + 1]["ts"].get<double>() - counters[i]["ts"].get<double>();
      EXPECT_GT(lasts_us, 0);
      energy_j += counters[i]["args"]["W"].get<double>() * lasts_us / kMicrosecondsPerSecond;
    }
    // The file has power in milliwatts.
    const plan::Evaluation& evaluation = timelines_[p].evaluation;
    EXPECT_NEAR(energy_j, evaluation.energy_j, 1e-3 * ToSeconds(evaluation.time));
    EXPECT_EQ(counters.back()["args"]["W"], 0);
  }
}

// A pipeline waits one second for other pipelines after its own iteration.
TEST_F(TraceTest, PpRanksThatWaitDrawBlockingPower) {
  Timeline waiting = timelines_[0];
  waiting.until = waiting.evaluation.time + 1'000'000'000;
  trace_ = json::parse(FormatTrace(graph_, 80, std::vector{waiting}));
  const std::vector<json> counters = Events("C", 0);
  EXPECT_NEAR(counters[counters.size() - 2]["args"]["W"], 3 * 80, 1e-3);
  EXPECT_EQ(counters.back()["args"]["W"], 0);
  EXPECT_NEAR(counters.back()["ts"], ToSeconds(waiting.until) * kMicrosecondsPerSecond, 1e-3);
}

TEST_F(TraceTest, LanesHaveNamesAndSlicesHaveTheirClock) {
  EXPECT_EQ(Events("M", 0).front()["args"]["name"], "\"quoted\"");
  const json first = Events("X", 0).front();
  EXPECT_EQ(first["name"], "F0");
  EXPECT_EQ(first["cat"], "forward");
  EXPECT_EQ(first["args"]["frequency_mhz"], 1410);
  const json last = Events("X", 0).back();
  EXPECT_EQ(last["name"], "all_reduce");
  EXPECT_FALSE(last["args"].contains("frequency_mhz"));
}

}  // namespace
}  // namespace perseus::report
