#include "perseus/planning/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::job {
namespace {

using ::testing::StartsWith;

TEST(Job, ReadsAllKeys) {
  const Result<Job> job = ParseJob(R"(
    profile = "profile.csv"           # relative to the job file
    [pipeline]
    schedule = "1f1b"
    pp_ranks = 8
    microbatches = 96
    chunks = 1
    pipelines = 16
    [gpu]
    blocking_power_w = 83.64
    gpus_per_stage = 8
    switch_latency_ms = 2.5
    switch_stall_s = 0.004
    max_switches = 6
    switch_energy_j = 1.5
    facts = "facts.toml"
    [memory]
    gpu_gib = 80
    activation_mib = 700.5
    model_gib = [40, 38.5]
    max_in_flight = [5, 4]
    [[fixed]]
    kind = "p2p"
    time_s = 0.0004
    [[fixed]]
    kind = "load"
    time_s = 1
    energy_j = 20
    [[fixed]]
    kind = "optimizer"
    time_s = 0.002
  )",
                                   "job.toml");
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_EQ(job->memory.gpu_gib, 80);
  EXPECT_EQ(job->memory.activation_mib, std::vector<double>{700.5});
  EXPECT_EQ(job->memory.model_gib, (std::vector<double>{40, 38.5}));
  EXPECT_EQ(job->max_in_flight, (std::vector<int>{5, 4}));
  EXPECT_EQ(job->profile_path, "profile.csv");
  EXPECT_EQ(job->facts_path, "facts.toml");
  EXPECT_EQ(job->schedule.name, "1f1b");
  EXPECT_EQ(job->schedule.pp_ranks, 8);
  EXPECT_EQ(job->schedule.microbatches, 96);
  EXPECT_EQ(job->schedule.chunks, 1);
  EXPECT_EQ(job->pipelines, 16);
  EXPECT_EQ(job->model.blocking_power_w, 83.64);
  EXPECT_EQ(job->model.gpus_per_stage, 8);
  EXPECT_EQ(job->switch_latency, 2'500'000);
  EXPECT_EQ(job->switch_cost.stall, 4'000'000);
  EXPECT_EQ(job->switch_cost.energy_j, 1.5);
  EXPECT_EQ(job->most_switches, 6);
  EXPECT_EQ(job->model.fixed.p2p, 400'000);
  EXPECT_EQ(job->model.fixed.load.time, 1'000'000'000);
  EXPECT_EQ(job->model.fixed.load.energy_j, 20);
  EXPECT_EQ(job->model.fixed.optimizer.time, 2'000'000);
  EXPECT_LT(job->model.fixed.optimizer.energy_j, 0) << "absent: blocking power";
  EXPECT_EQ(job->model.fixed.all_reduce.time, 0);
}

TEST(Job, KnowsWhichKeysItHas) {
  const Result<Job> job =
      ParseJob("[gpu]\nblocking_power_w = 0\n[[fixed]]\nkind = \"load\"\ntime_s = 1\n", "job.toml");
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_TRUE(job->Has("blocking_power_w"));
  EXPECT_TRUE(job->Has("fixed"));
  EXPECT_FALSE(job->Has("pp_ranks"));
}

TEST(Job, AbsentKeysKeepTheirDefaults) {
  const Result<Job> job = ParseJob("", "job.toml");
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_FALSE(job->Has("blocking_power_w"));
  EXPECT_EQ(job->profile_path, "");
  EXPECT_EQ(job->schedule.name, "");
  EXPECT_EQ(job->schedule.pp_ranks, 0);
  EXPECT_EQ(job->schedule.microbatches, 0);
  EXPECT_EQ(job->schedule.chunks, 1);
  EXPECT_EQ(job->pipelines, 1);
  EXPECT_EQ(job->model.gpus_per_stage, 1);
}

TEST(Job, AcceptsAScheduleFileOrAGraph) {
  EXPECT_EQ(ParseJob("pipeline.schedule_file = 'dump.csv'", "job.toml")->schedule_path, "dump.csv");
  EXPECT_EQ(ParseJob("[pipeline]\ngraph = 'work.json'", "job.toml")->graph_path, "work.json");
}

struct Refusal {
  std::string_view name;
  std::string_view text;
  std::string_view message;
};

class JobRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(JobRefusal, SaysWhereAndWhatToDo) {
  const Result<Job> job = ParseJob(GetParam().text, "job.toml");
  ASSERT_FALSE(job);
  EXPECT_THAT(job.error().Message(), StartsWith(std::string(GetParam().message)));
  EXPECT_EQ(job.error().Message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, JobRefusal,
    ::testing::Values(
        Refusal{"NotToml", "[pipeline]\nstages == 1", "job.toml:2: not TOML: "},
        Refusal{"OddTableName", "[%pu]", "job.toml:1: not TOML: "},
        Refusal{"NotText", "\xff\xfe", "job.toml:1: not TOML: "},
        Refusal{"DeepNesting", "a = [[[[[[[[[[[[[[[[[[[[[[[[", "job.toml:1: not TOML: "},
        Refusal{"UnknownKey", "[pipeline]\npp_rank = 8",
                "job.toml:2: [pipeline] has no key \"pp_rank\" (did you mean \"pp_ranks\"?)"},
        Refusal{"UnknownTable", "[pipe]",
                "job.toml:1: the job file has no key \"pipe\" (did you mean \"pipeline\"?)"},
        Refusal{"KeyOutsideOfItsTable", "blocking_power_w = 83",
                "job.toml:1: the job file has no key \"blocking_power_w\" (move it to [gpu])"},
        Refusal{"KeyInAnotherTable", "[gpu]\nmicrobatches = 12",
                "job.toml:2: [gpu] has no key \"microbatches\" (move it to [pipeline])"},
        Refusal{"TableUnlikeAny", "[zzz]", "job.toml:1: the job file has no key \"zzz\" (known: "},
        Refusal{"NotATable", "gpu = 3", "job.toml:1: gpu is not a table (write [gpu] "},
        Refusal{"TextForNumber", "[pipeline]\n\npp_ranks = '8'",
                "job.toml:3: pp_ranks is not a whole number from 1 to 100000"},
        Refusal{"FractionForCount", "[pipeline]\npp_ranks = 8.0",
                "job.toml:2: pp_ranks is not a whole number from 1 to 100000 (for example, write "
                "pp_ranks = 8)"},
        Refusal{"Zero", "[pipeline]\nmicrobatches = 0",
                "job.toml:2: microbatches is not a whole number from 1 to 1000000"},
        Refusal{"TooMany", "[pipeline]\npp_ranks = 100001", "job.toml:2: pp_ranks is not a whole"},
        Refusal{"NumberForText", "profile = 3", "job.toml:1: profile is not a string"},
        Refusal{"EmptyText", "profile = ''", "job.toml:1: profile is not a string"},
        Refusal{"NotANumber", "[gpu]\nblocking_power_w = nan",
                "job.toml:2: blocking_power_w is not a number from 0 to 100000"},
        Refusal{"Negative", "[gpu]\nswitch_latency_ms = -1",
                "job.toml:2: switch_latency_ms is not a number"},
        Refusal{"BoolForNumber", "[gpu]\nblocking_power_w = true",
                "job.toml:2: blocking_power_w is not a number"},
        Refusal{"UnknownSchedule", "[pipeline]\nschedule = '1f1'",
                "job.toml:2: unknown schedule \"1f1\" (did you mean \"1f1b\"?)"},
        Refusal{"TwoSources", "[pipeline]\nschedule = '1f1b'\ngraph = 'work.json'",
                "job.toml:1: [pipeline] has more than one of schedule, schedule_file and graph"},
        Refusal{"FixedIsNoList", "[fixed]\nkind = 'load'", "job.toml:1: fixed is not a list"},
        Refusal{"FixedHoldsNumbers", "fixed = [1]", "job.toml:1: fixed has an element"},
        Refusal{"MemoryText", "[memory]\nactivation_mib = ['700']",
                "job.toml:2: activation_mib has an element that is not a number"},
        Refusal{"MemoryEmpty", "[memory]\nmodel_gib = []", "job.toml:2: model_gib is empty"},
        Refusal{"MemoryOfNothing", "[memory]\ngpu_gib = 0", "job.toml:2: gpu_gib is not a number"},
        Refusal{"HalfAMicrobatch", "[memory]\nmax_in_flight = [4, 2.5]",
                "job.toml:2: max_in_flight has a number that is not whole"},
        Refusal{"FixedWithoutKind", "[[fixed]]\ntime_s = 1", "job.toml:1: [[fixed]] has no kind"},
        Refusal{"FixedWithoutTime", "[[fixed]]\nkind = 'load'",
                "job.toml:1: [[fixed]] \"load\" has no time_s"},
        Refusal{"FixedKind", "[[fixed]]\nkind = 'optimzer'\ntime_s = 1",
                "job.toml:2: unknown fixed instruction \"optimzer\" (did you mean \"optimizer\"?)"},
        Refusal{"FixedTwice",
                "[[fixed]]\nkind = 'load'\ntime_s = 1\n[[fixed]]\nkind = 'load'\ntime_s = 1",
                "job.toml:5: [[fixed]] load appears twice (keep one)"},
        Refusal{"EnergyOfP2p", "[[fixed]]\nkind = 'p2p'\ntime_s = 1\nenergy_j = 1",
                "job.toml:4: p2p has no energy_j"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace perseus::job
