#include "perseus/cluster/job_planning/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "perseus/planning/hardware_facts/assumed.h"

namespace perseus::job_planning {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kJobSpecJob =
    R"({"key": "gpt3-run7", "pipelines": 2, "tensor_parallel": 8,
  "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 12},
  "gpu": {"name": "A100", "blocking_power_w": 83.6, "switch_latency_ms": 5,
          "switch_stall_s": 0.004, "switch_energy_j": 1.5, "most_changes_per_s": 10},
  "fixed": {"p2p_s": 0.001, "all_reduce_s": 0.2, "all_reduce_j": 4.5},
  "target": {"kind": "price", "value": 0.12, "gpu_hour": 2}, "detect_stragglers": false})";

TEST(JobSpec, HasTheRegisteredValues) {
  const auto spec = StoredJobSpec(kJobSpecJob);
  ASSERT_TRUE(spec) << spec.error().Message();
  EXPECT_EQ(spec->key, "gpt3-run7");
  EXPECT_EQ(spec->planned.pipelines, 2);
  EXPECT_EQ(spec->planned.schedule.pp_ranks.size(), 4U);
  EXPECT_EQ(spec->planned.schedule.microbatches, 12);
  EXPECT_EQ(spec->planned.model.gpus_per_stage, 8);
  EXPECT_DOUBLE_EQ(spec->planned.model.blocking_power_w, 83.6);
  EXPECT_EQ(spec->planned.switch_latency, 5'000'000);
  EXPECT_EQ(spec->most_changes_per_s, 10);
  EXPECT_EQ(spec->planned.switch_cost.stall, 4'000'000);
  EXPECT_EQ(spec->planned.switch_cost.energy_j, 1.5);
  EXPECT_EQ(spec->planned.model.fixed.p2p, 1'000'000);
  EXPECT_EQ(spec->planned.model.fixed.all_reduce.time, 200'000'000);
  EXPECT_EQ(spec->planned.model.fixed.all_reduce.energy_j, 4.5);
  EXPECT_LT(spec->planned.model.fixed.optimizer.energy_j, 0)
      << "by default a GPU draws the blocking power";
  EXPECT_EQ(spec->target.kind, plan::Target::Kind::kPrice);
  EXPECT_EQ(spec->target.gpus, 32);
  EXPECT_FALSE(spec->detects_stragglers);
}

TEST(JobSpec, AClockChangeWithoutValuesHasTheAssumedOnes) {
  const auto spec_with = [](const std::string& gpu) {
    return StoredJobSpec(R"({"key": "run", "schedule": {"kind": "1f1b", "pp_ranks": 2,
                             "microbatches": 2}, "gpu": {)" +
                         gpu + "}}")
        ->planned;
  };
  EXPECT_EQ(spec_with("").switch_latency, hardware_facts::kAssumedSwitchLatency);
  EXPECT_EQ(spec_with("").switch_cost.stall, hardware_facts::kAssumedSwitchStall);
  EXPECT_EQ(spec_with(R"("switch_latency_ms": 0)").switch_latency, 0);
  EXPECT_EQ(spec_with(R"("switch_energy_j": 1)").switch_cost.stall, 0);
}

struct BadJob {
  const char* name;
  const char* from;
  const char* to;
  const char* pointer;
  const char* says;
};
class BadJobTest : public testing::TestWithParam<BadJob> {};
INSTANTIATE_TEST_SUITE_P(
    Rows, BadJobTest,
    testing::Values(
        BadJob{"NoKey", R"("key": "gpt3-run7",)", "", "/key", "key is missing"},
        BadJob{"KeyIsAPath", "gpt3-run7", "../x", "/key", "cannot name a job"},
        BadJob{"KeyLikeAnId", "gpt3-run7", "j-17", "/key", "cannot name a job"},
        BadJob{"NoPipelines", R"("pipelines": 2)", R"("pipelines": 0)", "/pipelines", "from 1"},
        BadJob{"UnknownSchedule", "1f1b", "2f2b", "/schedule", "2f2b"},
        BadJob{"SearchByKind", "1f1b", "auto", "/schedule", "perseus job register searches"},
        BadJob{"Search", R"({"kind": "1f1b", "pp_ranks": 4, "microbatches": 12})", R"("auto")",
               "/schedule", "perseus job register searches"},
        BadJob{"Typo", "blocking_power_w", "blocking_power", "/gpu/blocking_power", "did you mean"},
        BadJob{"NegativePower", "83.6", "-1", "/gpu/blocking_power_w", "watts"},
        BadJob{"UnknownTarget", R"("price")", R"("cheap")", "/target/kind", "\"slowdown\""},
        BadJob{"NegativeLimit", R"("pipelines": 2)", R"("max_switches": -1)", "/max_switches",
               "from 0"},
        BadJob{"ValueWithoutMeaning", R"({"kind": "price", "value")", R"({"kind": "edp", "value")",
               "/target/value", "leave it out"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_P(BadJobTest, IsRefusedWithThePlaceOfTheMistake) {
  std::string text(kJobSpecJob);
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string_view(GetParam().from).size(), GetParam().to);
  const nlohmann::json body = nlohmann::json::parse(text);
  try {
    ReadJobSpec({body, ""});
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.where.pointer, GetParam().pointer);
    EXPECT_THAT(error.Message(), HasSubstr(GetParam().says));
  }
}

TEST(Targets, AreReadFromSlugs) {
  using Kind = plan::Target::Kind;
  for (const plan::Target& target :
       {plan::Target{}, plan::Target{.kind = Kind::kSlowdown, .value = 2.5},
        plan::Target{.kind = Kind::kDeadline, .value = 2.9},
        plan::Target{.kind = Kind::kEnergyBudget, .value = 5000},
        plan::Target{.kind = Kind::kPowerCap, .value = 1200},
        plan::Target{.kind = Kind::kMinEnergy}, plan::Target{.kind = Kind::kEdp}}) {
    const auto found = TargetOfSlug(plan::Slug(target));
    ASSERT_TRUE(found) << plan::Slug(target);
    EXPECT_EQ(found->kind, target.kind) << plan::Slug(target);
    EXPECT_EQ(found->value, target.value) << plan::Slug(target);
  }
  for (const char* none : {"", "p-12", "slowdown-", "slowdown-x", "slowdown--5", "deadline-2.9",
                           "slowdown-nan", "slowdown-1e999"}) {
    EXPECT_FALSE(TargetOfSlug(none)) << none;
  }
}

TEST(Targets, AreReadFromTheirJson) {
  const plan::Target target{
      .kind = plan::Target::Kind::kPrice, .value = 0.1, .gpu_hour = 2.5, .gpus = 4};
  const auto again = ParseJobTarget(TargetJson(target).dump(), 4);
  ASSERT_TRUE(again) << again.error().Message();
  EXPECT_EQ(again->target.kind, target.kind);
  EXPECT_EQ(again->target.value, target.value);
  EXPECT_EQ(again->target.gpu_hour, target.gpu_hour);
  EXPECT_EQ(again->target.gpus, 4);
  EXPECT_EQ(again->expires, Milliseconds(0));
}

JobTarget NewTarget(const char* body, const JobTarget& before) {
  return json_file::Read(
             body, "body", kDeepestJobSpec,
             [&](const json_file::Node& node) { return ReadNewTarget(node, before, 1'000'000); })
      .value();
}

TEST(Targets, ATargetThatExpiresReturnsToTheLastOneThatDoesNot) {
  const JobTarget registered{.target = {.value = 5}};
  const JobTarget first =
      NewTarget(R"({"kind": "power_cap", "value": 1000, "expires_in": 60})", registered);
  const JobTarget second =
      NewTarget(R"({"kind": "power_cap", "value": 900, "expires_in": 1800.5})", first);
  EXPECT_EQ(first.expires, Milliseconds(1'060'000));
  const std::string text = JobTargetJson(second).dump();
  EXPECT_EQ(text, R"({"kind":"power_cap","value":900.0,"expires":"1970-01-01T00:46:40.500Z",)"
                  R"("then":{"kind":"slowdown","value":5.0}})");
  const auto again = ParseJobTarget(text, 4);
  ASSERT_TRUE(again) << again.error().Message();
  EXPECT_EQ(JobTargetJson(*again).dump(), text);
  EXPECT_EQ(again->then.gpus, 4);
  EXPECT_EQ(Describe(*again), "power cap 900 W until 1970-01-01T00:46:40.500Z, then 5 % slowdown");
  EXPECT_EQ(NewTarget(R"({"kind": "edp"})", second).expires, Milliseconds(0));
}

}  // namespace
}  // namespace perseus::job_planning
