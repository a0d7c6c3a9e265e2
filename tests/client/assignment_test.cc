// Tests how ranks follow the assignments of a job, and special cases of the C functions.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/client/client_test.h"
#include "tests/support/results.h"

namespace perseus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// ---- Assignments ----

class AssignmentTest : public ClientTest {
 protected:
  AssignmentTest() { job_ = directory_ / "job"; }
  std::unique_ptr<RankSession> Open() {
    StartAgent();
    RankSession::Place place = Place();
    place.job_directory = job_.string();
    return std::make_unique<RankSession>(place);
  }
  void Assign(const protocol::Assignment& assignment) const {
    const auto written = protocol::WriteAssignment(job_, assignment);
    ASSERT_TRUE(written) << written.error().Message();
  }
  // Runs steps until they follow this version. Returns whether they do.
  static bool Follows(RankSession& rank, std::int64_t version) {
    return Comes([&] {
      rank.RunStep(1);
      return rank.Counters().plan_version == version;
    });
  }
  std::filesystem::path job_;
};

TEST_F(AssignmentTest, PlansAndClocksApplyFromTheirStepOn) {
  const auto rank = Open();
  Write("job/plans/1.json", plan_file::FormatPlan(PlanWithClocks({1410, 1005})));
  protocol::Assignment plan;
  plan.plan = "plans/1.json";
  Assign(plan);
  EXPECT_TRUE(Follows(*rank, 1));
  EXPECT_TRUE(LockBecomes(0, 1005));

  protocol::Assignment clocks;
  clocks.version = 1;
  clocks.clocks = {{0, 0, InstructionKind::kForward, 1200},
                   {0, 0, InstructionKind::kBackward, 1305},
                   {1, 0, InstructionKind::kBackward, 300}};
  const auto steps = [&] { return static_cast<std::int64_t>(rank->Counters().steps); };
  // On a busy machine, the rank may read the assignment after this step. Then the next attempt
  // writes an assignment for a later step.
  for (const int ahead : {50, 500, 5000}) {
    ++clocks.version;
    clocks.from_step = steps() + ahead;
    Assign(clocks);
    EXPECT_TRUE(Follows(*rank, clocks.version));
    if (steps() == clocks.from_step + 1) break;
  }
  EXPECT_EQ(steps(), clocks.from_step + 1);
  EXPECT_TRUE(EndsStepAt(*rank, 1305));

  protocol::Assignment none;
  none.version = clocks.version + 1;
  Assign(none);
  EXPECT_TRUE(Follows(*rank, none.version));
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  rank->Close();

  // Each recorded step has the version of its assignment.
  protocol::RankLogReader log(protocol::RankLogPath(job_, {0, 0, 0}));
  const auto records = ValueOf(log.ReadNew());
  for (const protocol::RankRecord& record : records) {
    const auto* step = std::get_if<protocol::RanStep>(&record);
    if (step == nullptr) continue;
    EXPECT_TRUE(step->on_plan);
    if (step->step < clocks.from_step) {
      EXPECT_LT(step->assignment_version, clocks.version);
    } else {
      EXPECT_GE(step->assignment_version, clocks.version);
    }
  }
}

// The node may have requested the plan before this rank was attached. So the plan lacks this rank.
TEST_F(AssignmentTest, ARankWaitsIfThePlanWasCutDownToOthers) {
  const auto rank = Open();
  plan_file::PlanFile cut = PlanWithClocks({1410, 1005});
  const plan_file::PlanFile whole = cut;
  cut.pp_ranks[0].is_cut = true;
  cut.pp_ranks[0].instructions.resize(1);
  Write("job/plans/1.json", plan_file::FormatPlan(cut));
  protocol::Assignment assignment;
  assignment.plan = "plans/1.json";
  Assign(assignment);
  for (int i = 0; i < 20; ++i) rank->RunStep(1);
  EXPECT_EQ(rank->Counters().plan_version, 0);

  Write("job/plans/1.json", plan_file::FormatPlan(whole));
  assignment.version = 2;
  Assign(assignment);
  EXPECT_TRUE(Follows(*rank, 2));
  EXPECT_TRUE(LockBecomes(0, 1005));
  rank->Close();
  EXPECT_EQ(rank->Counters().steps_off_plan, 0U);
}

TEST_F(AssignmentTest, EachPipelineFollowsItsOwnPlan) {
  const auto rank = Open();  // A rank of pipeline 0.
  RankSession::Place place = Place(1);
  place.pp_rank = 0;
  place.dp_rank = 1;
  place.job_directory = job_.string();
  RankSession other(place);
  Write("job/plans/a.json", plan_file::FormatPlan(PlanWithClocks({1410, 1005})));
  Write("job/plans/b.json", plan_file::FormatPlan(PlanWithClocks({1410, 705})));
  protocol::Assignment assignment;
  assignment.plan = "plans/a.json";
  assignment.plans = {{1, "plans/b.json"}};
  Assign(assignment);
  EXPECT_TRUE(Follows(*rank, 1));
  EXPECT_TRUE(Follows(other, 1));
  EXPECT_TRUE(LockBecomes(0, 1005));
  EXPECT_TRUE(LockBecomes(1, 705));
}

// Training may make its pipeline again. For readers of the record, it is one process.
TEST_F(AssignmentTest, ALaterSessionContinuesTheRecord) {
  StartAgent();
  RankSession::Place place = Place();
  place.job_directory = job_.string();
  for (const int steps : {1, 6}) {
    RankSession rank(place);
    for (int step = 0; step < steps; ++step) rank.RunStep(1);
    EXPECT_EQ(rank.Counters().steps, static_cast<std::uint64_t>(steps));
    if (steps == 1) {
      perseus_step_begin(rank.get());  // Is abandoned.
    }
  }
  protocol::RankLogReader reader(protocol::RankLogPath(job_, {0, 0, 0}));
  std::vector<std::int64_t> numbers;
  std::vector<protocol::RankHeader> headers;
  for (const protocol::RankRecord& record : ValueOf(reader.ReadNew())) {
    if (const auto* step = std::get_if<protocol::RanStep>(&record)) numbers.push_back(step->step);
    if (const auto* header = std::get_if<protocol::RankHeader>(&record)) headers.push_back(*header);
  }
  EXPECT_THAT(numbers, ElementsAre(0, 2, 3, 4, 5, 6, 7));
  ASSERT_EQ(headers.size(), 2U);
  EXPECT_TRUE(protocol::IsOfSameProcess(headers[0], headers[1]));
}

// `perseus verify` does the same with a job that was started with PERSEUS_PLAN.
TEST_F(AssignmentTest, AnAssignmentMayReturnToTheOwnPlan) {
  StartAgent();
  RankSession::Place place = PlaceWithPlan(PlanWithClocks({1410, 1005}));
  place.job_directory = job_.string();
  RankSession rank(place);
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  protocol::Assignment none;
  none.until_step = 1'000'000;
  Assign(none);
  EXPECT_TRUE(Follows(rank, 1));
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  protocol::Assignment own;
  own.version = 2;
  own.own = true;
  Assign(own);
  EXPECT_TRUE(Follows(rank, 2));
  EXPECT_TRUE(EndsStepAt(rank, 1005));
}

TEST_F(AssignmentTest, AnAssignmentMayTurnOffRecording) {
  const auto rank = Open();
  protocol::Assignment assignment;
  assignment.record = false;
  Assign(assignment);
  EXPECT_TRUE(Follows(*rank, 1));
  const auto steps = rank->Counters().steps;
  for (int i = 0; i < 5; ++i) rank->RunStep(1);
  rank->Close();
  protocol::RankLogReader log(protocol::RankLogPath(job_, {0, 0, 0}));
  // The header, all steps except the one that follows the assignment, and the end.
  EXPECT_THAT(ValueOf(log.ReadNew()), SizeIs(steps + 1));
}

TEST_F(AssignmentTest, ABadPlanInAnAssignmentIsAWarningAndNotFollowed) {
  const auto rank = Open();
  Write("job/plans/1.json", plan_file::FormatPlan(PlanWithClocks({1410, 1005})));
  protocol::Assignment assignment;
  assignment.plan = "plans/1.json";
  Assign(assignment);
  EXPECT_TRUE(Follows(*rank, 1));
  Write("job/plans/2.json", "no plan");
  assignment.version = 2;
  assignment.plan = "plans/2.json";
  Assign(assignment);
  EXPECT_TRUE(Follows(*rank, 0));
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  EXPECT_THAT(rank->Warnings(), HasSubstr("2.json"));
  Write("job/assignment.json", "{");
  EXPECT_TRUE(Comes([&] {
    rank->RunStep(1);
    return rank->Warnings().find("assignment.json") != std::string::npos;
  }));
  rank->Close();
  EXPECT_THAT(Read("job/ranks/dp0-pp0-tp0.jsonl"), HasSubstr("\"remark\""));
}

TEST_F(AssignmentTest, ALogAtItsLimitContinuesAndItsReaderMissesNoStep) {
  constexpr std::size_t kMost = 6000;
  constexpr std::int64_t kSteps = 100;
  ::setenv("PERSEUS_LOG_BYTES", "6000", 1);
  const auto rank = Open();
  ::unsetenv("PERSEUS_LOG_BYTES");
  const std::filesystem::path path = protocol::RankLogPath(job_, {0, 0, 0});
  protocol::RankLogReader log(path);
  std::vector<std::int64_t> followed;
  const auto follow = [&] {
    const auto records = log.ReadNew();
    EXPECT_TRUE(records) << records.error().Message();
    for (const protocol::RankRecord& record : *records) {
      if (const auto* step = std::get_if<protocol::RanStep>(&record))
        followed.push_back(step->step);
    }
  };
  for (std::int64_t step = 0; step < kSteps; ++step) {
    rank->RunStep(1);
    ASSERT_TRUE(Comes([&] {
      follow();
      return static_cast<std::int64_t>(followed.size()) > step;
    }));
    std::error_code none;
    const auto size = [&](const std::filesystem::path& file) {
      return std::filesystem::exists(file) ? std::filesystem::file_size(file, none) : 0;
    };
    EXPECT_LE(size(path) + size(protocol::OlderRankLogPath(path)), kMost);
  }
  EXPECT_EQ(rank->Counters().warnings, 0U);
  rank->Close();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(followed[static_cast<std::size_t>(step)], step);
  }
  EXPECT_LT(Read("job/ranks/dp0-pp0-tp0.jsonl").find("\"step\":"), kMost)
      << "the new log must not have only a header";
  // A later reader has the last steps, without gaps.
  protocol::RankLogReader late(path);
  std::vector<std::int64_t> kept;
  for (auto records = late.ReadNew(); records && !records->empty(); records = late.ReadNew()) {
    for (const protocol::RankRecord& record : *records) {
      if (const auto* step = std::get_if<protocol::RanStep>(&record)) kept.push_back(step->step);
    }
  }
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back(), kSteps - 1);
  EXPECT_EQ(kept.back() - kept.front() + 1, static_cast<std::int64_t>(kept.size()));
  EXPECT_GT(kept.size(), 4U);
}

TEST_F(AssignmentTest, ADeletedLogBeginsAgain) {
  const auto rank = Open();
  rank->RunStep(1);
  ASSERT_TRUE(Comes(
      [&] { return Read("job/ranks/dp0-pp0-tp0.jsonl").find("\"step\":0") != std::string::npos; }));
  const std::filesystem::path moved = directory_ / "moved";
  std::filesystem::rename(job_, moved);  // No new file can appear in it while it is deleted.
  std::filesystem::remove_all(moved);
  ASSERT_TRUE(Comes([&] { return rank->Counters().warnings > 0; }));
  EXPECT_THAT(rank->Warnings(), HasSubstr("job/ranks/dp0-pp0-tp0.jsonl was deleted"));
  rank->RunStep(1);
  rank->Close();
  EXPECT_EQ(rank->Warnings(), "");
  protocol::RankLogReader log(protocol::RankLogPath(job_, {0, 0, 0}));
  const auto records = ValueOf(log.ReadNew());
  ASSERT_THAT(records, SizeIs(3));
  EXPECT_TRUE(std::get<protocol::RankHeader>(records[0]).may_set_clocks);
  EXPECT_EQ(std::get<protocol::RanStep>(records[1]).step, 1);
  EXPECT_TRUE(std::get<protocol::Remark>(records[2]).IsEnd());
}

TEST_F(AssignmentTest, TheLogRecordsALaterLease) {
  RankSession::Place place = Place();
  place.job_directory = job_.string();
  RankSession rank(place);  // No agent listens yet.
  rank.RunStep(1);
  StartAgent();
  ASSERT_TRUE(Comes([&] { return rank.Counters().may_set_clocks == 1; }));
  rank.Close();
  protocol::RankLogReader log(protocol::RankLogPath(job_, {0, 0, 0}));
  const auto records = ValueOf(log.ReadNew());
  std::vector<protocol::RankHeader> headers;
  for (const protocol::RankRecord& record : records) {
    if (const auto* header = std::get_if<protocol::RankHeader>(&record)) headers.push_back(*header);
  }
  ASSERT_THAT(headers, SizeIs(2));
  EXPECT_FALSE(headers[0].may_set_clocks);
  EXPECT_TRUE(headers[1].may_set_clocks);
  EXPECT_FALSE(headers[1].sm_clocks_mhz.empty());
  EXPECT_EQ(headers[1].epoch, headers[0].epoch);
  EXPECT_EQ(headers[1].pid, headers[0].pid);
}

TEST_F(AssignmentTest, AnAssignmentWithAMissingPlanIsReadAgain) {
  const auto rank = Open();
  protocol::Assignment assignment;
  assignment.plan = "plans/1.json";
  Assign(assignment);  // The plan is not visible yet, as on a network file system.
  ASSERT_TRUE(Comes([&] { return rank->Counters().warnings == 1; }));
  rank->RunStep(1);
  EXPECT_EQ(rank->Counters().plan_version, 0);
  Write("job/plans/1.json", plan_file::FormatPlan(PlanWithClocks({1410, 1005})));
  EXPECT_TRUE(Follows(*rank, 1));
  EXPECT_TRUE(LockBecomes(0, 1005));
  // The library checks 20 times per second, and warns once.
  const std::string log = Read("job/ranks/dp0-pp0-tp0.jsonl");
  EXPECT_NE(log.find("\"remark\""), std::string::npos);
  EXPECT_EQ(log.find("\"remark\""), log.rfind("\"remark\""));
}

TEST_F(AssignmentTest, TwoRanksOfOneNameDoNotShareALog) {
  const auto first = Open();
  first->RunStep(1);
  RankSession::Place place = Place(1);
  place.pp_rank = 0;
  place.job_directory = job_.string();
  RankSession second(place);
  EXPECT_THAT(second.Warnings(), HasSubstr("another process records as dp0-pp0-tp0"));
  second.RunStep(1);
  second.Close();
  first->RunStep(1);
  first->Close();
  protocol::RankLogReader log(protocol::RankLogPath(job_, {0, 0, 0}));
  EXPECT_THAT(ValueOf(log.ReadNew()), SizeIs(4));  // The header, two steps, and the end.
}

TEST_F(AssignmentTest, AnUnwritableJobDirectoryIsAWarning) {
  Write("file", "");
  RankSession::Place place = Place();
  place.job_directory = (directory_ / "file").string();
  RankSession rank(place);
  rank.RunStep(1);
  EXPECT_THAT(rank.Warnings(), HasSubstr("steps are not recorded; check PERSEUS_JOB_DIR"));
  EXPECT_EQ(rank.Counters().steps, 1U);
}

// ---- The interface ----

TEST(Interface, NullIsAccepted) {
  perseus_step_begin(nullptr);
  perseus_instruction_begin(nullptr, 0, 0, 0);
  perseus_instruction_end(nullptr);
  perseus_instruction_begin_on(nullptr, 0, 0, 0, nullptr);
  perseus_instruction_end_on(nullptr, nullptr);
  perseus_step_end(nullptr);
  EXPECT_EQ(perseus_use_plan(nullptr, "plan.json"), -1);
  EXPECT_EQ(perseus_take_warning(nullptr, nullptr, 0), 0U);
  perseus_counters counters{};
  counters.size = sizeof counters;
  counters.steps = 1;
  perseus_read_counters(nullptr, &counters);
  EXPECT_EQ(counters.steps, 0U);
  perseus_costs costs{};
  costs.size = sizeof costs;
  costs.steps = 1;
  perseus_read_costs(nullptr, &costs);
  EXPECT_EQ(costs.steps, 0U);
  perseus_close(nullptr);
}

TEST(Interface, ShorterStructsOfOlderProgramsAreRespected) {
  perseus_counters counters{};
  counters.size = offsetof(perseus_counters, steps_off_plan);
  counters.steps_off_plan = 17;
  perseus_read_counters(nullptr, &counters);
  EXPECT_EQ(counters.steps_off_plan, 17U);
  perseus_costs costs{};
  costs.size = offsetof(perseus_costs, step_time_s);
  costs.step_time_s = 17;
  perseus_read_costs(nullptr, &costs);
  EXPECT_EQ(costs.step_time_s, 17);
}

TEST(Interface, UnknownKindsAreIgnored) {
  RankSession rank({"off", "off", "", 0, "", "", 0});
  perseus_step_begin(rank.get());
  rank.Run(PERSEUS_OPTIMIZER_STEP + 1, 0);
  rank.Run(-1, 0);
  rank.Run(PERSEUS_FORWARD, -1);
  rank.Run(PERSEUS_RECOMPUTE, 0);
  perseus_step_end(rank.get());
  EXPECT_EQ(rank.Counters().instructions, 1U);
  EXPECT_THAT(rank.Warnings(), HasSubstr("is ignored"));
}

TEST(Interface, WarningsAreCutToTheBuffer) {
  RankSession rank({"off", "none", "", 0, "", "", 0});
  char few[8];
  const std::size_t length = perseus_take_warning(rank.get(), few, sizeof few);
  EXPECT_GT(length, 8U);
  EXPECT_EQ(std::string(few).size(), 7U);
  EXPECT_EQ(perseus_take_warning(rank.get(), few, sizeof few), 0U);
}

}  // namespace
}  // namespace perseus
