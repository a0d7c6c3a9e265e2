// Tests jobs, profiles, plans, nodes and tokens, with every database.
#include <fmt/core.h>

#include <atomic>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "perseus/cluster/store/database.h"
#include "tests/support/store_fixture.h"

namespace perseus::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

INSTANTIATE_TEST_SUITE_P(Every, StoreTest, kBackends, NameOf);

TEST_P(StoreTest, FindsAJobByIdAndByKey) {
  EXPECT_THAT(job_, testing::MatchesRegex("j-[0-9a-f]{16}"));
  const JobRecord expected = {.id = job_,
                              .key = "run7",
                              .body = "{}",
                              .target = "t",
                              .status = JobStatus::kWaiting,
                              .problem = "",
                              .created = 1000,
                              .summary = ""};
  EXPECT_EQ(Get(store_->FindJob(job_)), expected);
  EXPECT_EQ(Get(store_->FindJob("run7")), expected);
  EXPECT_EQ(Get(store_->FindJob("run8")), std::nullopt);
}

TEST_P(StoreTest, AKeyBelongsToOneRunningJob) {
  const auto again = Get(store_->CreateJob({.key = "run7", .body = "other", .target = "u"}, 2000));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.job, Job());

  Succeed(store_->EndJob(job_, 3000));
  const auto next = Get(store_->CreateJob({.key = "run7", .body = "other", .target = "u"}, 4000));
  EXPECT_TRUE(next.is_new);
  EXPECT_NE(next.job.id, job_);
  EXPECT_EQ(Job("run7").id, next.job.id);
  EXPECT_EQ(Job(job_).ended, 3000);

  Succeed(store_->EndJob(next.job.id, 5000));
  EXPECT_EQ(Job("run7").id, next.job.id) << "the newest ended job";
}

TEST_P(StoreTest, ConcurrentRegistrationsOfAKeyGetOneJob) {
  std::vector<Store::Created> created(8);
  RunInThreads(created.size(), [&](std::size_t i) {
    created[i] = Get(store_->CreateJob({.key = "shared", .body = "{}", .target = "t"}, 1000));
  });
  int new_jobs = 0;
  for (const Store::Created& one : created) {
    EXPECT_EQ(one.job.id, created[0].job.id);
    new_jobs += one.is_new ? 1 : 0;
  }
  EXPECT_EQ(new_jobs, 1);
}

TEST_P(StoreTest, ListsJobsInPagesInOrderOfCreation) {
  // All jobs have the same time of creation.
  for (const char* key : {"b", "a", "c"}) Register(key);
  Succeed(store_->EndJob(Job("a").id, 2000));
  const auto keys = [&](Store::Which which, std::string_view after, int limit) {
    std::vector<std::string> found;
    for (const JobRecord& job : Get(store_->ListJobs(which, after, limit))) {
      found.push_back(job.key);
    }
    return found;
  };
  EXPECT_THAT(keys(Store::Which::kAll, "", 100), ElementsAre("run7", "b", "a", "c"));
  EXPECT_THAT(keys(Store::Which::kRunning, "", 100), ElementsAre("run7", "b", "c"));
  EXPECT_THAT(keys(Store::Which::kRunning, job_, 1), ElementsAre("b"));
  EXPECT_THAT(keys(Store::Which::kAll, Job("c").id, 100), IsEmpty());
  EXPECT_THAT(keys(Store::Which::kAll, "", 0), IsEmpty());
  EXPECT_THAT(keys(Store::Which::kAll, "", -1), IsEmpty());
  EXPECT_EQ(store_->ListJobs(Store::Which::kAll, "j-gone", 1).error().kind, ErrorKind::kInput);
}

TEST_P(StoreTest, ChangesOnlyRunningJobs) {
  Succeed(store_->EndJob(job_, 2000));
  Succeed(store_->EndJob(job_, 3000));
  EXPECT_EQ(Job().ended, 2000);
  const JobRecord before = Job();
  for (const std::string& job : {job_, std::string("j-0000000000000000")}) {
    EXPECT_EQ(store_->SetTarget(job, "u", 1).error().kind, ErrorKind::kInput);
    EXPECT_EQ(store_->PutProfile(job, "csv", 1).error().kind, ErrorKind::kInput);
    EXPECT_EQ(store_->AttachNode(job, "n", "[]", 1).error().kind, ErrorKind::kInput);
    EXPECT_EQ(
        store_->PutStraggler({.job = job, .source = StragglerSource::kReport}, 1).error().kind,
        ErrorKind::kInput);
    EXPECT_EQ(store_->PutZeusRank(job, 0, 0, "{}").error().kind, ErrorKind::kInput);
    EXPECT_EQ(store_->ClearZeusRanks(job).error().kind, ErrorKind::kInput);
    EXPECT_FALSE(Get(store_->DeleteStraggler(job, 0, StragglerSource::kReport, 1)));
    Succeed(RecordStep(job, 9, "", 9));
    Succeed(store_->RequestPlanning(job, 1));
  }
  EXPECT_EQ(Job(), before);
  EXPECT_EQ(Get(store_->NextPlanningTime()), std::nullopt);
  EXPECT_EQ(store_->EndJob("j-0000000000000000", 1).error().kind, ErrorKind::kInput);
}

TEST_P(StoreTest, StepsIncreaseUnlessTheJobRestarted) {
  Succeed(RecordStep(job_, 10, "ten", 5000));
  Succeed(RecordStep(job_, 9, "late", 5100));
  EXPECT_EQ(Job().last_step, 10);
  EXPECT_EQ(Job().summary, "ten");
  Succeed(RecordStep(job_, 2, "early", 64'999));
  EXPECT_EQ(Job().last_step, 10);
  Succeed(RecordStep(job_, 3, "restarted", 65'000));
  EXPECT_EQ(Job().last_step, 3);
  EXPECT_EQ(Job().last_step_at, 65'000);
}

// The steps of the previous run must not delay an assignment, even if its last report is later.
TEST_P(StoreTest, ARestartedJobCountsFrom0WithAnyClock) {
  Succeed(RecordStep(job_, 50'000, "before", 5200));
  Succeed(store_->RecordSteps({{.job = job_,
                                .counts = StepRecord::Counts::kRestart,
                                .step = -1,
                                .summary = "restarted",
                                .at = 5000}}));
  EXPECT_EQ(Job().last_step, -1);
  EXPECT_EQ(Job().summary, "restarted");
}

TEST_P(StoreTest, OnlyADifferentProfileIsANewVersion) {
  EXPECT_FALSE(Get(store_->FindProfile(job_)).has_value());
  EXPECT_EQ(Get(store_->PutProfile(job_, "a", 1500)), 1);
  EXPECT_EQ(Job().generation, 1);
  EXPECT_EQ(Get(store_->NextPlanningTime()), 1500);

  EXPECT_EQ(Get(store_->PutProfile(job_, "a", 1600)), 1);
  EXPECT_EQ(Job().generation, 1);
  EXPECT_EQ(Get(store_->PutProfile(job_, "b", 1700)), 2);
  EXPECT_EQ(Get(store_->PutProfile(job_, "a", 1800)), 3) << "it differs from the newest one";
  const auto profile = Get(store_->FindProfile(job_));
  EXPECT_EQ(profile->version, 3);
  EXPECT_EQ(profile->csv, "a");
  EXPECT_EQ(Job().profile_version, 3);
}

TEST_P(StoreTest, StoresVeryLongTexts) {
  std::string csv = std::string(50'000'000, 'x');
  csv[12'345'678] = '\n';
  csv += "end, and \xC3\xA9";
  EXPECT_EQ(Get(store_->PutProfile(job_, csv, 1)), 1);
  EXPECT_TRUE(Get(store_->FindProfile(job_))->csv == csv);
  EXPECT_EQ(Get(store_->PutProfile(job_, csv, 1)), 1);
}

TEST_P(StoreTest, RefusesTextsThatSomeDatabaseCannotStore) {
  using std::string_literals::operator""s;
  const auto refused = [&](const std::string& text) {
    const Result<void> set = store_->SetTarget(job_, text, 1);
    EXPECT_EQ(set.error().kind, ErrorKind::kInput);
    return set.error().Message();
  };
  EXPECT_THAT(refused("ab\0cd"s), HasSubstr("byte 3 of the text is NUL"));
  for (const char* text : {"ab\xFF", "ab\xC3", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF5\x80\x80\x80",
                           "ab\xE0\x80\x80", "ab\xF0\x80\x80\x80", "ab\xF4\x90\x80\x80"}) {
    EXPECT_THAT(refused(text), HasSubstr("byte 3 of the text is not UTF-8"));
  }
  EXPECT_EQ(store_->FindJob("a\0b"s).error().kind, ErrorKind::kInput);
  EXPECT_EQ(Job().generation, 0);
  // The store checks the size before it reads the text.
  const std::size_t too_long = 500'000'000 + job_.size();
  EXPECT_FALSE(store_->SetTarget(job_, std::string_view(job_.data(), too_long), 1));
  // Unprintable UTF-8 is stored.
  const std::string odd = "\x01\x7F '\"; DROP TABLE jobs; -- $1 %\\ \xF0\x9F\x98\x80 \xEF\xBF\xBF";
  Succeed(store_->SetTarget(job_, odd, 1));
  EXPECT_EQ(Job().target, odd);
  Succeed(store_->SetTarget(job_, "", 1));
  EXPECT_EQ(Job().target, "");
}

TEST_P(StoreTest, StoresNumbersExactlyUpToTheirLimits) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  const StragglerRecord straggler = {.job = job_,
                                     .dp_rank = std::numeric_limits<int>::max(),
                                     .source = StragglerSource::kReport,
                                     .slowdown = 1.1000000000000001,
                                     .starts = -Milliseconds::Max(),
                                     .expires = Milliseconds::Max()};
  Succeed(store_->PutStraggler(straggler, 1));
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(straggler));
  Succeed(RecordStep(job_, kMax, "", Milliseconds::Max()));
  EXPECT_EQ(Job().last_step, kMax);
  for (const double slowdown : {0.99, -1.0, std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(store_
                  ->PutStraggler(
                      {.job = job_, .source = StragglerSource::kReport, .slowdown = slowdown}, 1)
                  .error()
                  .kind,
              ErrorKind::kInput);
  }
}

TEST_P(StoreTest, FindsPlansByIdAndBySlug) {
  Get(store_->PutProfile(job_, "a", 1));
  PlanRecord one = NewPlan("edp", 1, "one");
  one.time_s = 0.1;
  one.energy_j = 1e5 / 3;
  one.baseline_time_s = 1.0 / 3;
  one.baseline_energy_j = 4;
  const PlanRecord first = Get(store_->AddPlan(one, 5000));
  EXPECT_THAT(first.id, testing::MatchesRegex("p-[0-9a-f]{16}"));
  EXPECT_EQ(first.created, 5000);
  EXPECT_EQ(Get(store_->FindPlan(job_, "edp")), first);
  EXPECT_EQ(Get(store_->FindPlanById(first.id)), first);
  EXPECT_EQ(Get(store_->FindPlan(job_, "other")), std::nullopt);

  Get(store_->PutProfile(job_, "b", 2));
  EXPECT_EQ(Get(store_->FindPlan(job_, "edp")), std::nullopt);
  EXPECT_EQ(Get(store_->FindPlanById(first.id)), first);
  PlanRecord second = Get(store_->AddPlan(NewPlan("edp", 2, "two"), 5000));
  EXPECT_EQ(Get(store_->FindPlan(job_, "edp")), second);
  PlanRecord listed = first;
  listed.body.clear();
  second.body.clear();
  EXPECT_THAT(Get(store_->ListPlans(job_, 9)), ElementsAre(second, listed));
  EXPECT_THAT(Get(store_->ListPlans(job_, 1)), ElementsAre(second));

  EXPECT_EQ(store_->AddPlan(first, 1).error().kind, ErrorKind::kInput) << "it exists";
  PlanRecord without_job = NewPlan("edp", 1);
  without_job.job = "j-0";
  EXPECT_EQ(store_->AddPlan(without_job, 1).error().kind, ErrorKind::kInput);
}

// Returns the text of ranks of the first pipeline.
std::string RanksOf(const std::vector<int>& ranks) {
  std::string list;
  for (const int rank : ranks) {
    list += (list.empty() ? "" : ",") + (R"({"dp_rank":0,"pp_rank":)" + std::to_string(rank)) +
            R"(,"tp_rank":0})";
  }
  return "[" + list + "]";
}

TEST_P(StoreTest, NodesKeepWhatTheyAcknowledged) {
  const std::string other = Register("run8");
  Succeed(store_->AttachNode(job_, "n2", RanksOf({2}), 10));
  Succeed(store_->AttachNode(job_, "n1", RanksOf({1}), 10));
  Succeed(store_->AttachNode(other, "n1", RanksOf({9}), 10));
  const NodeRecord report = {.job = job_,
                             .node = "n1",
                             .ranks = RanksOf({1}),
                             .acknowledged = 7,
                             .following = 6,
                             .since_step = 88,
                             .seen = 20,
                             .ran = 15,
                             .running = 1,
                             .without_lease = 1};
  Succeed(store_->Acknowledge({report}));
  EXPECT_THAT(
      Get(store_->ListNodesOfJob(job_)),
      ElementsAre(
          report,
          NodeRecord{.job = job_, .node = "n2", .ranks = RanksOf({2}), .seen = 10, .ran = 10}));
  EXPECT_THAT(Get(store_->ListJobsOfNode("n1")), SizeIs(2));
  const NodeClaim idle{.node = "n3", .instance = "a"};
  EXPECT_THAT(Get(store_->ClaimNodes({idle}, 50, 40)), IsEmpty());
  EXPECT_THAT(Get(store_->ListNodes("n1", 2)),
              ElementsAre(NodeClaim{.node = "n2", .instance = ""},
                          NodeClaim{.node = "n3", .instance = "", .seen = 50}));
  EXPECT_EQ(Get(store_->ListNodes("", 1)).front().node, "n1");

  NodeRecord later = report;
  later.acknowledged = 5;
  later.seen = 30;
  later.ran = 10;
  Succeed(store_->Acknowledge({later}));
  later.acknowledged = 7;
  later.ran = 15;
  EXPECT_EQ(Get(store_->ListNodesOfJob(job_))[0], later);

  Succeed(store_->AttachNode(job_, "n1", RanksOf({1, 3}), 40));
  later.ranks = RanksOf({1, 3});
  later.seen = later.ran = 40;
  later.running = -1;
  later.without_lease = 0;
  EXPECT_EQ(Get(store_->ListNodesOfJob(job_))[0], later);

  Succeed(store_->DetachNode(job_, "n1"));
  Succeed(store_->DetachNode(job_, "n1"));
  EXPECT_THAT(Get(store_->ListNodesOfJob(job_)), SizeIs(1));
  Succeed(store_->Acknowledge({report}));
  EXPECT_THAT(Get(store_->ListNodesOfJob(job_)), SizeIs(1)) << "not attached by a report";
}

TEST_P(StoreTest, ARankIsOnTheLastNodeThatAttachedIt) {
  const std::string other = Register("run8");
  const auto rank = [](int dp_rank, int pp_rank) {
    return R"({"dp_rank":)" + std::to_string(dp_rank) + R"(,"pp_rank":)" + std::to_string(pp_rank) +
           R"(,"tp_rank":0)";
  };
  const auto gpu = [](const std::string& of) { return R"(,"gpu":")" + of + R"("})"; };
  Succeed(store_->AttachNode(job_, "a", "[" + rank(0, 0) + "}]", 10));
  Succeed(store_->AttachNode(
      job_, "b", "[" + rank(1, 0) + gpu("GPU-b0") + "," + rank(1, 1) + gpu("GPU-b1") + "]", 10));
  Succeed(store_->AttachNode(other, "b", "[" + rank(1, 0) + "}]", 10));
  const auto nodes = [&] {
    std::map<std::string, std::string> ranks;
    for (const NodeRecord& node : Get(store_->ListNodesOfJob(job_))) ranks[node.node] = node.ranks;
    return ranks;
  };
  using testing::Pair;
  Succeed(store_->AttachNode(job_, "c", "[" + rank(1, 0) + gpu("GPU-c0") + "]", 20));
  EXPECT_THAT(nodes(), ElementsAre(Pair("a", "[" + rank(0, 0) + "}]"),
                                   Pair("b", "[" + rank(1, 1) + gpu("GPU-b1") + "]"),
                                   Pair("c", "[" + rank(1, 0) + gpu("GPU-c0") + "]")));
  Succeed(store_->AttachNode(job_, "c", "[" + rank(1, 0) + "}," + rank(1, 1) + "}]", 30));
  EXPECT_THAT(nodes(), ElementsAre(Pair("a", "[" + rank(0, 0) + "}]"),
                                   Pair("c", "[" + rank(1, 0) + "}," + rank(1, 1) + "}]")));
  EXPECT_THAT(Get(store_->ListJobsOfNode("b")), SizeIs(1)) << "of the other job";
  EXPECT_EQ(store_->AttachNode(job_, "d", "none", 40).error().kind, ErrorKind::kInput);
}

TEST_P(StoreTest, ANameBelongsToOneProcessUntilItIsSilentOrReleasesIt) {
  const NodeClaim first = {.node = "n1", .instance = "a"};
  const NodeClaim second = {.node = "n1", .instance = "b"};
  const auto claim = [&](const std::vector<NodeClaim>& claims, Milliseconds now) {
    return Get(store_->ClaimNodes(claims, now, now - 100));
  };
  EXPECT_THAT(claim({first}, 1000), IsEmpty());
  EXPECT_THAT(claim({second, {.node = "n0", .instance = "b"}}, 1050), ElementsAre("n1"));
  EXPECT_THAT(claim({first}, 1050), IsEmpty()) << "the same process, perhaps at another replica";
  EXPECT_THAT(claim({second}, 1150), ElementsAre("n1"));
  EXPECT_THAT(claim({second}, 1151), IsEmpty()) << "the first one is silent";
  EXPECT_THAT(claim({first}, 1152), ElementsAre("n1"));
  // The first process has already lost the name, so nothing changes.
  Succeed(store_->ReleaseNode(first));
  EXPECT_THAT(claim({first}, 1152), ElementsAre("n1"));
  Succeed(store_->ReleaseNode(second));
  EXPECT_THAT(claim({first}, 1152), IsEmpty());
  EXPECT_EQ(Get(store_->Prune(1153, 10)), 0);
  EXPECT_THAT(claim({second}, 1153), IsEmpty()) << "old claims are deleted";
}

TEST_P(StoreTest, AGuardBelongsToAProfileAndATarget) {
  Get(store_->PutProfile(job_, "csv", 1));
  const JobRecord job = Job();
  GuardRecord guard{.job = job_,
                    .state = GuardState::kTrial,
                    .profile_version = job.profile_version,
                    .target = job.target,
                    .with_plan = 1.5,
                    .error = 0.25,
                    .since = 5,
                    .why = "heat"};
  EXPECT_FALSE(Get(store_->PutGuard(guard, GuardState::kWithdrawn, 5))) << "there is no guard yet";
  EXPECT_TRUE(Get(store_->PutGuard(guard, std::nullopt, 5)));
  EXPECT_EQ(Get(store_->FindGuard(job)), guard);
  EXPECT_EQ(Job().generation, job.generation + 1);
  EXPECT_FALSE(Get(store_->PutGuard(guard, std::nullopt, 6))) << "another replica was first";
  guard.state = GuardState::kWithdrawn;
  guard.without_plan = 1.25;
  EXPECT_TRUE(Get(store_->PutGuard(guard, GuardState::kTrial, 7)));
  EXPECT_EQ(Get(store_->FindGuard(job)), guard);

  // A target that is replaced is the one that the caller knows.
  EXPECT_FALSE(*store_->ReplaceTarget(job_, "other", "v", 8));
  EXPECT_EQ(Job().target, job.target);
  // Setting a target ends the guard, even if it is the same target. A late verdict changes nothing.
  Succeed(store_->SetTarget(job_, job.target, 8));
  EXPECT_EQ(Get(store_->FindGuard(job)), std::nullopt);
  EXPECT_FALSE(Get(store_->PutGuard(guard, GuardState::kTrial, 9)));
  // A verdict on an old profile changes nothing.
  Get(store_->PutProfile(job_, "another csv", 10));
  guard.state = GuardState::kTrial;
  EXPECT_FALSE(Get(store_->PutGuard(guard, std::nullopt, 11)));
  EXPECT_EQ(Get(store_->FindGuard(Job())), std::nullopt);

  const auto trail = Get(store_->ListAudit({.action = "plan"}));
  ASSERT_EQ(trail.size(), 2U);
  EXPECT_EQ(trail[0].action, "plan.try");
  EXPECT_EQ(trail[0].by.reason, "heat");
  EXPECT_EQ(trail[1].action, "plan.withdraw");
  EXPECT_EQ(trail[1].before, R"({"state":"trial"})");
}

TEST_P(StoreTest, CountsDuePlannings) {
  EXPECT_EQ(Get(store_->ReadPlanningBacklog(1'000)).jobs, 0);
  Succeed(store_->RequestPlanning(job_, 500));
  EXPECT_EQ(Get(store_->ReadPlanningBacklog(400)).jobs, 0);
  const auto backlog = Get(store_->ReadPlanningBacklog(1'000));
  EXPECT_EQ(backlog.jobs, 1);
  EXPECT_EQ(backlog.oldest_due, 500);
}

TEST_P(StoreTest, ListsTokensUntilTheyAreDeleted) {
  const TokenRecord token = {.id = "t1",
                             .hash = "00ff",
                             .scope = Scope::kJob,
                             .job = "run7",
                             .name = "night shift",
                             .created = 5,
                             .expires = 6};
  Succeed(store_->AddToken(token));
  EXPECT_EQ(store_->AddToken(token).error().kind, ErrorKind::kInput);
  EXPECT_THAT(Get(store_->ListTokens()), ElementsAre(token));
  EXPECT_TRUE(Get(store_->DeleteToken("t1")));
  EXPECT_FALSE(Get(store_->DeleteToken("t1")));
  EXPECT_THAT(Get(store_->ListTokens()), IsEmpty());
}

TEST_P(StoreTest, KeepsTheNewestTokensOfANodeThatJoins) {
  for (int i = 0; i < 6; ++i) {
    const TokenRecord token{.id = fmt::format("t{}", i),
                            .hash = fmt::format("{:02x}", i),
                            .scope = Scope::kAgent,
                            .created = i,
                            .expires = 1000,
                            .nodes = "n0",
                            .issued_by = "join"};
    EXPECT_FALSE(Get(store_->JoinNode(token, false)));
  }
  const auto kept = Get(store_->ListTokensOfNode("n0"));
  ASSERT_EQ(kept.size(), Store::kMostTokensOfNode);
  EXPECT_EQ(kept.front().id, "t2");
}

TEST_P(StoreTest, KeepsTheLastOperatorTokenThatNeverExpires) {
  TokenRecord token{.id = "a", .hash = "00", .scope = Scope::kOperator, .job = "", .name = ""};
  Succeed(store_->AddToken(token));
  token.id = "expiring";
  token.expires = 9;
  Succeed(store_->AddToken(token));
  EXPECT_EQ(store_->DeleteToken("a").error().kind, ErrorKind::kUnreachable)
      << "the other token expires";
  EXPECT_TRUE(Get(store_->DeleteToken("expiring")));
  Succeed(store_->AddToken({.id = "machine", .scope = Scope::kOperator, .certificate = "ann"}));
  EXPECT_EQ(store_->DeleteToken("a").error().kind, ErrorKind::kUnreachable)
      << "the other token needs a certificate, which may be unavailable";
  EXPECT_TRUE(Get(store_->DeleteToken("machine")));
  token.expires = 0;
  for (int round = 0; round < 20; ++round) {
    const std::string before = Get(store_->ListTokens()).front().id;
    token.id = fmt::format("b{}", round);
    Succeed(store_->AddToken(token));
    const std::string ids[] = {before, token.id};
    std::atomic<int> deleted = 0;
    RunInThreads(2, [&](std::size_t i) {
      if (store_->DeleteToken(ids[i])) ++deleted;
    });
    EXPECT_EQ(deleted, 1);
    ASSERT_EQ(Get(store_->ListTokens()).size(), 1u);
  }
}

// Operators behind a proxy need no token.
TEST_P(StoreTest, TheOnlyOperatorTokenMayBeDeletedIfItExpires) {
  Succeed(store_->AddToken({.id = "a", .hash = "00", .scope = Scope::kOperator, .expires = 9}));
  EXPECT_TRUE(Get(store_->DeleteToken("a")));
}

TEST_P(StoreTest, ZeusRanksHaveDifferentPositions) {
  const auto count = [this] { return Get(store_->FindZeusRank(job_, 0)).ranks; };
  EXPECT_TRUE(Get(store_->PutZeusRank(job_, 10, 0, "ten")));
  EXPECT_TRUE(Get(store_->PutZeusRank(job_, 2, 1, "two")));
  EXPECT_TRUE(Get(store_->PutZeusRank(job_, 10, 0, "TEN")));
  EXPECT_FALSE(Get(store_->PutZeusRank(job_, 3, 1, "three")));
  EXPECT_FALSE(Get(store_->PutZeusRank(job_, 10, 1, "moved")));
  EXPECT_TRUE(Get(store_->PutZeusRank(Register("run8"), 3, 1, "of another job")));
  EXPECT_EQ(count(), 2);
  EXPECT_EQ(Get(store_->FindZeusRank(job_, 10)).body, "TEN");
  EXPECT_EQ(Get(store_->FindZeusRank(job_, 3)).body, "");
  Succeed(store_->ClearZeusRanks(job_));
  EXPECT_EQ(count(), 0);
  EXPECT_TRUE(Get(store_->PutZeusRank(job_, 3, 1, "three")));
}

TEST_P(StoreTest, PruneDeletesEndedJobsWithTheirRecords) {
  Get(store_->PutProfile(job_, "a", 1));
  const PlanRecord plan = Get(store_->AddPlan(NewPlan("edp", 1), 1));
  Succeed(store_->AttachNode(job_, "n1", "[]", 1));
  Succeed(store_->PutStraggler({.job = job_, .source = StragglerSource::kReport}, 1));
  EXPECT_TRUE(Get(store_->PutZeusRank(job_, 0, 0, "{}")));
  const std::string other = Register("run8");
  const std::string running = Register("run9");
  Succeed(store_->EndJob(job_, 2000));
  EXPECT_THAT(Get(store_->ListNodesOfJob(job_)), IsEmpty());
  EXPECT_THAT(Get(store_->ListJobsOfNode("n1")), IsEmpty());
  EXPECT_THAT(Get(store_->ListStragglers(job_)), IsEmpty());
  EXPECT_EQ(Get(store_->NextPlanningTime()), std::nullopt);
  EXPECT_TRUE(Get(store_->FindProfile(job_)).has_value()) << "kept until it is pruned";

  Succeed(store_->EndJob(other, 3000));
  EXPECT_EQ(Get(store_->Prune(2000, 10)), 0);
  EXPECT_EQ(Get(store_->Prune(9000, 1)), 1);
  EXPECT_EQ(Get(store_->FindJob(job_)), std::nullopt) << "the one that ended first";
  EXPECT_EQ(Get(store_->FindPlanById(plan.id)), std::nullopt);
  EXPECT_FALSE(Get(store_->FindProfile(job_)).has_value());
  EXPECT_EQ(Get(store_->FindZeusRank(job_, 0)).ranks, 0);
  EXPECT_EQ(Get(store_->Prune(9000, 10)), 1);
  EXPECT_EQ(Job(running).ended, 0);
}

TEST_P(StoreTest, KeepsRecordsWhenItIsOpenedAgain) {
  if (GetParam() == Backend::kMemory) GTEST_SKIP() << "a database in memory ends with the store";
  Get(store_->PutProfile(job_, "a", 1));
  const JobRecord before = Job();
  store_.reset();
  store_ = Get(OpenStore(address_));
  EXPECT_EQ(Job(), before);
  EXPECT_EQ(Get(store_->FindProfile(job_))->csv, "a");
}

TEST_P(StoreTest, RefusesTablesOfANewerProgram) {
  if (GetParam() == Backend::kMemory) GTEST_SKIP() << "a database in memory ends with the store";
  store_.reset();
  Succeed(Get(OpenDatabase(address_))->Transact([](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(transaction.Run("UPDATE schema_version SET version = $1", {1000}));
    return {};
  }));
  const auto newer = OpenStore(address_);
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().kind, ErrorKind::kInput);
  EXPECT_THAT(newer.error().Message(), HasSubstr("have version 1000"));
  EXPECT_THAT(newer.error().Message(), HasSubstr("use the program that made them"));
}

}  // namespace
}  // namespace perseus::store
