// Tests what a node attaches, fetches, writes and reports.
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/support/node_fixture.h"

namespace perseus::node {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Before the first rank runs, the node asks whether the server has the job.
TEST_F(NodeTest, SaysThatTheServerDoesNotHaveTheJob) {
  MakeJob();
  server_.job_status = 404;
  server_.job_problem = R"({"title": "There is no such job", "detail": "no job gpt3-run7"})";
  Turn();
  Turn(6'000 * kMillisecond);
  const std::string question = "GET /v1/jobs/gpt3-run7/assignments?limit=1";
  EXPECT_THAT(server_.requests, ElementsAre(question, question));
  const std::string warning = "does not have job gpt3-run7: 404: no job gpt3-run7";
  EXPECT_THAT(logged_.str(), HasSubstr(warning));
  EXPECT_THAT(logged_.str(), HasSubstr("perseus job register gpt3-run7"));
  EXPECT_EQ(logged_.str().find(warning), logged_.str().rfind(warning)) << "once";
  server_.job_status = 200;
  Turn(6'000 * kMillisecond);
  EXPECT_THAT(logged_.str(), HasSubstr("the server has job gpt3-run7"));
  Turn(6'000 * kMillisecond);
  EXPECT_THAT(server_.requests, SizeIs(3)) << "not again";
}

TEST_F(NodeTest, ANameOfADirectoryForgesNoLineOfTheLog) {
  MakeJob("run\n[error] forged \x1b[31m");
  Turn();
  EXPECT_THAT(logged_.str(), HasSubstr("run\\x0A[error] forged \\x1B[31m is a directory of job"));
}

TEST_F(NodeTest, ANewProcessContinuesAboveTheVersionOfTheRanks) {
  const RankLogs logs = MakeFollowedJob();
  std::filesystem::remove(directory_ / "run/assignment.json");
  Start();
  Turn();
  logs.End({0, 0, 0}, 2, 9);
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_EQ(InForce().version, 10);
}

TEST_F(NodeTest, ASecondDirectoryWithTheSameKeyIsIgnoredWithOneWarning) {
  const RankLogs first = MakeJob("a");
  const RankLogs second = MakeJob("b");
  first.Begin({0, 0, 0}, 100);
  second.Begin({1, 0, 0}, 101);
  Turn();
  Turn(6'000 * kMillisecond);
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));
  EXPECT_THAT(logged_.str(),
              HasSubstr((directory_ / "a").string() + " and in " + (directory_ / "b").string()));
  EXPECT_EQ(logged_.str().find("another name"), logged_.str().rfind("another name"));
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_EQ(InForce("a").PlanOf(0), PlanPath(kPlanA));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "b" / "assignment.json"));

  std::filesystem::remove_all(directory_ / "a");
  server_.requests.clear();
  Turn();
  EXPECT_THAT(server_.requests, Contains("PUT /v1/nodes/n7/jobs/gpt3-run7"));
}

TEST_F(NodeTest, ARunThatContinuesInAnotherDirectoryIsAttached) {
  const RankLogs first = MakeJob("b");
  first.Begin({0, 0, 0}, 100);
  Turn();
  const RankLogs second = MakeJob("a");
  Turn();
  Turn(3'600'000 * kMillisecond);
  server_.requests.clear();
  second.Begin({0, 0, 0}, 101);
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));
  Turn(6'000 * kMillisecond);
  EXPECT_THAT(server_.requests, SizeIs(1));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("another name")));
}

TEST_F(NodeTest, AttachesRanksFetchesPlansWritesTheAssignmentAndReports) {
  const RankLogs logs = MakeJob();
  Turn();
  // No rank runs yet.
  EXPECT_THAT(server_.requests, ElementsAre("GET /v1/jobs/gpt3-run7/assignments?limit=1"));
  server_.requests.clear();
  for (int rank = 0; rank < 2; ++rank) logs.Begin({0, rank, 0}, 100 + rank);
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));

  server_.requests.clear();
  Receive(7, 1, {{"0", kPlanA}, {"1", kPlanA}});
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre(std::string("GET /v1/plans/") + kPlanA));
  EXPECT_EQ(InForce().PlanOf(1), PlanPath(kPlanA));
  EXPECT_EQ(InForce().from_step, 1);
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 7);
  EXPECT_EQ(server_.reports.back()[0].at("following"), 0);
  EXPECT_EQ(node_->LastEventId(), "j-1:7");

  for (int rank = 0; rank < 2; ++rank) logs.End({0, rank, 0}, 1, InForce().version);
  Turn();
  const json report = server_.reports.back()[0];
  EXPECT_EQ(report.at("job"), "j-1");
  EXPECT_EQ(report.at("following"), 7);
  EXPECT_EQ(report.at("since_step"), 1);
  ASSERT_EQ(report.at("steps").size(), 1U);
  EXPECT_EQ(report.at("steps")[0].at("step"), 1);
  EXPECT_EQ(report.at("steps")[0].at("ranks"), 2);

  server_.requests.clear();
  Receive(7, 1, {{"0", kPlanA}});  // A repetition is ignored.
  Receive(8, 50, {{"0", kPlanA}});
  Turn();
  EXPECT_THAT(server_.requests, IsEmpty());
  EXPECT_EQ(InForce().from_step, 50);
  EXPECT_EQ(InForce().version, 2);
}

// An older server refuses the number of running ranks. Then no step is lost.
TEST_F(NodeTest, ReportsHowManyRanksRunToServersThatTakeIt) {
  const RankLogs logs = MakeAttachedJob();
  auto process = logs.Lock({0, 0, 0});
  Turn();
  EXPECT_FALSE(server_.reports.back()[0].contains("running"));
  server_.report_answer = R"({"takes": ["running", "more"]})";
  Turn(5 * kSecond);
  Turn();
  EXPECT_EQ(server_.reports.back()[0].at("running"), 1);
  process = FileDescriptor();
  Turn();
  EXPECT_EQ(server_.reports.back()[0].at("running"), 0) << "at once";

  server_.refuses_running = true;
  server_.report_answer = "{}";
  for (int step = 1; step < 4; ++step) {
    logs.End({0, 0, 0}, step, 0);
    Turn();
  }
  EXPECT_FALSE(server_.reports.back()[0].contains("running"));
  std::vector<int> steps;
  for (const json& report : server_.reports) {
    for (const json& step : report[0].at("steps")) steps.push_back(step.at("step"));
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("refuses")));
}

// Returns a plan that has only the instructions of rank 0, as the server sends it.
json CutPlan() {
  json plan = json::parse(TinyPlan(2));
  json& other = plan["pp_ranks"][1];
  other["cut"] = true;
  other["instructions"].erase(1);
  return plan;
}

TEST_F(NodeTest, RanksWhoseLogsAreDeletedAreDetached) {
  const RankLogs logs = MakeJob();
  for (int rank = 0; rank < 2; ++rank) logs.Begin({0, rank, 0}, 100 + rank);
  Turn();
  server_.requests.clear();
  for (const int rank : {1, 0}) {
    std::filesystem::remove(protocol::RankLogPath(directory_ / "run", {0, rank, 0}));
    for (int i = 0; i < 6; ++i) Turn();
  }
  EXPECT_THAT(server_.requests,
              ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7", "DELETE /v1/nodes/n7/jobs/gpt3-run7",
                          "GET /v1/jobs/gpt3-run7/assignments?limit=1"));
}

TEST_F(NodeTest, PlansInAnAssignmentEventAreNotFetched) {
  const RankLogs logs = MakeAttachedJob();
  server_.requests.clear();
  Receive(7, 1, {{"0", kPlanA}}, {{kPlanA, CutPlan()}});
  Turn();
  EXPECT_THAT(server_.requests, IsEmpty());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "run" / PlanPath(kPlanA)));
}

TEST_F(NodeTest, ARankThatStartsLaterGetsAPlanWithItsInstructions) {
  const RankLogs logs = MakeJob();
  server_.plan = TinyPlan(2);
  logs.Begin({0, 0, 0}, 100);
  Turn();
  Receive(7, 0, {{"0", kPlanA}}, {{kPlanA, CutPlan()}});
  Turn();
  const std::int64_t written = InForce().version;
  server_.requests.clear();
  logs.Begin({0, 1, 0}, 101);
  Turn();
  EXPECT_THAT(server_.requests, Contains(std::string("GET /v1/plans/") + kPlanA));
  EXPECT_EQ(InForce().version, written + 1);
  EXPECT_EQ(InForce().from_step, 0);
  server_.requests.clear();
  Turn();
  EXPECT_THAT(server_.requests, IsEmpty());
  EXPECT_EQ(InForce().version, written + 1);
  // A new process uses the plan in the directory.
  Start();
  Turn();
  Turn();
  EXPECT_THAT(server_.requests, Not(Contains(std::string("GET /v1/plans/") + kPlanA)));
}

TEST_F(NodeTest, AFalseOriginDoesNotKeepAJobFromItsAssignment) {
  const RankLogs logs = MakeAttachedJob();
  Receive(7, 0, {{"0", kPlanA}});
  Turn();
  protocol::Assignment forged;
  forged.server = protocol::ServerOrigin{"j-1", 900};
  for (const char* name : {"another", "z-another"}) {
    std::filesystem::create_directory(directory_ / name);
    ASSERT_TRUE(protocol::WriteAssignment(directory_ / name, forged));
    ASSERT_TRUE(WriteFileAtomically(directory_ / name / "server.json", R"({"job": "mine"})"));
  }
  Turn(6'000 * kMillisecond);
  EXPECT_EQ(node_->LastEventId(), "j-1:7");
}

TEST_F(NodeTest, RanksOfAnotherPipelineThatStartLaterGetTheirPlan) {
  const RankLogs logs = MakeAttachedJob();
  EXPECT_EQ(node_->LastEventId(), "j-1:0") << "the server has to send the end of the job";
  Receive(7, 0, {{"0", kPlanA}});
  Turn();
  EXPECT_EQ(node_->LastEventId(), "j-1:7");
  logs.Begin({1, 0, 0}, 101);
  Turn();
  EXPECT_EQ(node_->LastEventId(), "j-1:0") << "the server has to send the assignment again";
  Receive(7, 0, {{"0", kPlanA}, {"1", kPlanB}});
  Turn();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  EXPECT_EQ(InForce().PlanOf(1), PlanPath(kPlanB));
  EXPECT_EQ(node_->LastEventId(), "j-1:7");
}

TEST_F(NodeTest, AnInvalidPlanInAnAssignmentEventIsFetched) {
  const RankLogs logs = MakeAttachedJob();
  Receive(7, 1, {{"0", kPlanA}}, {{kPlanA, json::object()}});
  Turn();
  EXPECT_THAT(server_.requests, Contains(std::string("GET /v1/plans/") + kPlanA));
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
}

TEST_F(NodeTest, ReportsAtTheEndOfAStepAndAtLeastEveryFourSeconds) {
  const RankLogs logs = MakeAttachedJob();
  const std::size_t first = server_.reports.size();
  ASSERT_EQ(first, 1U);
  Turn(1'000 * kMillisecond);
  EXPECT_THAT(server_.reports, SizeIs(first));
  logs.End({0, 0, 0}, 0, 0);
  Turn(100 * kMillisecond);
  ASSERT_THAT(server_.reports, SizeIs(first + 1));
  EXPECT_THAT(server_.reports.back()[0].at("steps"), SizeIs(1));
  Turn(3'900 * kMillisecond);
  EXPECT_THAT(server_.reports, SizeIs(first + 1));
  Turn(100 * kMillisecond);
  ASSERT_THAT(server_.reports, SizeIs(first + 2));
  EXPECT_THAT(server_.reports.back()[0].at("steps"), IsEmpty());
}

TEST_F(NodeTest, AReportHasAllJobs) {
  for (const char* name : {"one", "two"}) {
    const RankLogs logs = MakeJob(name, name);
    logs.Begin({0, 0, 0}, 100);
    Turn();
    logs.End({0, 0, 0}, 0, 0);
  }
  Turn();
  EXPECT_THAT(server_.reports.back(), SizeIs(2));
}

// Any user of the node may write such a log. The jobs of other users are not affected.
TEST_F(NodeTest, AStepThatTheServerWouldRefuseIsNotReported) {
  const RankLogs good = MakeJob("good", "good");
  const RankLogs bad = MakeJob("bad", "bad");
  for (const RankLogs* logs : {&good, &bad}) logs->Begin({0, 0, 0}, 100);
  Turn();
  for (int step = 0; step < 2; ++step) {
    good.End({0, 0, 0}, step, 0);
    bad.End({0, 0, 0}, step, 0);
  }
  protocol::RanStep extreme;
  extreme.step = 2;
  extreme.end = Nanoseconds{500'000'000} * kSecond;
  bad.Append({0, 0, 0}, extreme);
  good.End({0, 0, 0}, 2, 0);
  for (int i = 0; i < 3; ++i) Turn();
  std::map<std::string, std::vector<int>> steps;
  for (const json& jobs : server_.reports) {
    for (const json& job : jobs) {
      for (const json& step : job.at("steps")) steps[job.at("job")].push_back(step.at("step"));
    }
  }
  EXPECT_THAT(steps["j-good"], ElementsAre(0, 1, 2));
  EXPECT_THAT(steps["j-bad"], ElementsAre(0, 1));
  EXPECT_THAT(logged_.str(), HasSubstr("bad: step 2 of pipeline 0 is not reported: "));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("refuses reports")));
}

TEST_F(NodeTest, ManyJobsAreReportedInSeveralRequests) {
  for (int job = 0; job < 65; ++job) {
    MakeJob(fmt::format("{}", job), fmt::format("key{}", job)).Begin({0, 0, 0}, 100);
  }
  Turn();
  ASSERT_THAT(server_.reports, SizeIs(2));
  EXPECT_EQ(server_.reports[0].size() + server_.reports[1].size(), 65U);
}

TEST_F(NodeTest, AJobThatTheServerRefusesIsNamed) {
  const RankLogs logs = MakeAttachedJob();
  server_.report_answer = R"({"not_attached": [], "refused": {"j-1": "since_step is wrong"}})";
  logs.End({0, 0, 0}, 0, 0);
  Turn();
  EXPECT_THAT(logged_.str(), HasSubstr("refuses the report of job gpt3-run7: since_step is wrong"));
}

TEST_F(NodeTest, WithoutTheServerAssignmentsStayAndTheNewestStepsAreStored) {
  const RankLogs logs = MakeFollowedJob();
  server_.is_away = true;
  const std::size_t before = server_.reports.size();
  for (int step = 1; step <= 400; ++step) {
    logs.End({0, 0, 0}, step, InForce().version);
    Turn();
  }
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  const std::string log = logged_.str();
  EXPECT_THAT(log, HasSubstr("cannot reach http://server: refused; ranks keep"));
  EXPECT_EQ(log.find("cannot reach"), log.rfind("cannot reach"));
  server_.is_away = false;
  for (int i = 0; i < 6; ++i) Turn();
  EXPECT_THAT(logged_.str(), HasSubstr("can be reached again"));
  ASSERT_GT(server_.reports.size(), before);
  const json steps = server_.reports.at(before)[0].at("steps");
  EXPECT_EQ(steps.size(), 256U);
  EXPECT_EQ(steps.back().at("step"), 400);
}

TEST_F(NodeTest, AnInvalidPlanLeavesThePreviousAssignmentInForce) {
  const RankLogs logs = MakeFollowedJob();
  server_.plan = "{}";
  Receive(8, 9, {{"0", kPlanB}});
  Turn();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  EXPECT_THAT(logged_.str(), HasSubstr(kPlanB));
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 7);
  server_.plan = TinyPlan();
  Turn(5'000 * kMillisecond);
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanB));
}

TEST_F(NodeTest, NothingIsAcknowledgedWhileTheJobHasAnotherCoordinator) {
  const RankLogs logs = MakeAttachedJob();
  {
    const auto tune = protocol::AssignmentWriter::Open(directory_ / "run");
    ASSERT_TRUE(tune);
    Receive(7, 1, {{"0", kPlanA}});
    Turn();
    Turn();
    EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 0);
    EXPECT_THAT(logged_.str(), HasSubstr("another perseus gives this job its assignment"));
  }
  Turn();
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 7);
}

TEST_F(NodeTest, UpcomingPlansAreFetchedAhead) {
  const RankLogs logs = MakeAttachedJob();
  Receive(7, 1, {{"0", kPlanA}}, json::object(), {kPlanA, kPlanB});
  Turn();
  Turn();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  server_.is_away = true;
  Receive(8, 1, {{"0", kPlanB}});
  Turn();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanB));
}

TEST_F(NodeTest, ReportsNothingWhileAnotherProcessHasItsName) {
  const RankLogs logs = MakeAttachedJob();
  EXPECT_THAT(server_.reports, SizeIs(1));
  server_.attach_status = 409;
  server_.attach_problem = R"({"status": 409, "pointer": "/instance"})";
  node_->LoseName();
  for (int step = 0; step < 10; ++step) {
    logs.End({0, 0, 0}, step, 0);
    Turn();
  }
  EXPECT_THAT(server_.reports, SizeIs(1));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("warning"))) << "the stream of events reports it";
  server_.attach_status = 200;
  server_.attach_problem = "";
  for (int i = 0; i < 5; ++i) Turn();
  ASSERT_THAT(server_.reports, SizeIs(2));
  EXPECT_THAT(server_.reports.back()[0].at("steps"), SizeIs(10));
}

TEST_F(NodeTest, ADamagedLogIsOneWarning) {
  const RankLogs logs = MakeAttachedJob();
  const std::string before = logged_.str();
  for (int i = 0; i < 5; ++i) {
    logs.Text("dp0-pp0-tp0.jsonl", "nonsense\n");
    Turn();
  }
  EXPECT_THAT(logged_.str().substr(before.size()), HasSubstr("dp0-pp0-tp0.jsonl:2"));
  EXPECT_THAT(logged_.str().substr(before.size()), Not(HasSubstr("dp0-pp0-tp0.jsonl:3")));
}

TEST_F(NodeTest, PlansThatDoNotComeAreOneWarning) {
  MakeAttachedJob();
  server_.plan = "nonsense";
  for (int version = 7; version < 12; ++version) {
    Receive(version, 1, {{"0", fmt::format("p-{:016x}", version)}});
    Turn(5'000 * kMillisecond);
  }
  EXPECT_THAT(logged_.str(), HasSubstr("plan p-0000000000000007 of job gpt3-run7 is not avail"));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("plan p-0000000000000008")));
}

TEST_F(NodeTest, ADeletedDirectoryIsDetached) {
  const RankLogs logs = MakeAttachedJob();
  std::filesystem::remove_all(directory_ / "run");
  server_.requests.clear();
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("DELETE /v1/nodes/n7/jobs/gpt3-run7"));
  Turn();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run"));
}

TEST_F(NodeTest, OtherDirectoriesAndInvalidEventsAreIgnored) {
  RankLogs(directory_ / "private").Begin({0, 0, 0}, 100);
  RankLogs(directory_ / "broken").Begin({0, 0, 0}, 100);
  std::ofstream(directory_ / "broken/server.json") << R"({"id": 7})";
  Turn();
  Turn();
  EXPECT_THAT(server_.requests, IsEmpty());
  EXPECT_THAT(logged_.str(), HasSubstr("broken/server.json"));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("private")));
  node_->Receive({"assignment", "", "{"});
  node_->Receive({"ended", "", R"({"job": "j-9"})"});
  EXPECT_THAT(logged_.str(), HasSubstr("event assignment:1: not JSON"));
}

}  // namespace
}  // namespace perseus::node
