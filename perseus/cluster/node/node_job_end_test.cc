// Tests a node with jobs that end, that start again, or that the server does not know.
#include "tests/support/node_fixture.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(NodeTest, AnEndedJobRequestsAttachmentAfterStepsAndAfterARestart) {
  const RankLogs logs = MakeFollowedJob();
  node_->Receive({"ended", "", R"({"job": "j-1"})"});
  server_.attach_status = 409;
  const std::size_t reports = server_.reports.size();
  server_.requests.clear();
  Turn();
  EXPECT_TRUE(InForce().own);
  Turn(10'000 * kMillisecond);
  EXPECT_THAT(server_.requests, IsEmpty()) << "no rank runs";
  for (int step = 3; step < 7; ++step) {
    logs.End({0, 0, 0}, step, 1);
    Turn(2'500 * kMillisecond);
  }
  EXPECT_THAT(server_.requests, SizeIs(2));
  EXPECT_THAT(server_.reports, SizeIs(reports));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("does not accept the ranks")));
  server_.attach_status = 200;
  server_.requests.clear();
  logs.Begin({0, 0, 0}, 200);
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));
}

TEST_F(NodeTest, AJobThatIsRegisteredAgainGetsItsNewAssignment) {
  const RankLogs logs = MakeFollowedJob();
  node_->Receive({"ended", "", R"({"job": "j-1"})"});
  Turn();
  server_.job = "j-2";
  logs.End({0, 0, 0}, 3, 1);
  Turn(5'000 * kMillisecond);
  Receive(1, 9, {{"0", kPlanB}});
  Turn();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanB));
  EXPECT_EQ(server_.reports.back()[0].at("job"), "j-2");
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 1);
}

// The node did not run when its job ended and was registered again.
TEST_F(NodeTest, AssignmentsAndEventsOfAnEarlierJobWithTheKeyAreDropped) {
  const RankLogs logs = MakeFollowedJob();
  logs.End({0, 0, 0}, 1, InForce().version);
  Start();
  Turn();
  server_.job = "j-2";
  logs.End({0, 0, 0}, 2, InForce().version);
  Turn();
  EXPECT_TRUE(InForce().own);
  EXPECT_EQ(server_.reports.back()[0].at("job"), "j-2");
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 0);

  server_.job = "j-1";
  Receive(8, 1, {{"0", kPlanA}});  // A late event of the earlier job.
  Turn();
  EXPECT_TRUE(InForce().own);
  server_.job = "j-2";
  Receive(1, 9, {{"0", kPlanB}});
  Turn();
  node_->Receive({"ended", "", R"({"job": "j-1"})"});
  Turn();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanB));
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 1);
}

// A restarted node receives the end of a job before it has attached the ranks.
TEST_F(NodeTest, AnEndBeforeTheAttachmentEndsTheJobOfTheAssignment) {
  const RankLogs logs = MakeFollowedJob();
  Start();
  server_.is_away = true;
  Turn();
  node_->Receive({"ended", "", R"({"job": "j-1"})"});
  Turn();
  EXPECT_TRUE(InForce().own);
}

TEST_F(NodeTest, AssignmentsStayWhenTheNodeEndsAndTheNextProcessContinues) {
  const RankLogs logs = MakeFollowedJob();
  logs.End({0, 0, 0}, 1, InForce().version);
  node_.reset();
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));

  Start();
  Turn();
  EXPECT_EQ(node_->LastEventId(), "j-1:7");
  logs.End({0, 0, 0}, 2, InForce().version);
  Turn();
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 7);
  EXPECT_EQ(server_.reports.back()[0].at("following"), 7);
}

TEST_F(NodeTest, TheRanksOfATrainingThatEndedAreDetachedAfterTheirLastReport) {
  const RankLogs logs = MakeFollowedJob();
  logs.End({0, 0, 0}, 2, 1);
  logs.Close({0, 0, 0});
  server_.requests.clear();
  server_.report_status = 503;
  Turn();
  EXPECT_THAT(server_.requests, IsEmpty()) << "the last step is not reported";
  server_.report_status = 200;
  Turn();
  EXPECT_EQ(server_.reports.back()[0].at("steps")[0].at("step"), 2);
  server_.is_away = true;
  Turn(5'000 * kMillisecond);
  server_.is_away = false;
  for (int i = 0; i < 3; ++i) Turn(10'000 * kMillisecond);
  EXPECT_THAT(server_.requests, ElementsAre("DELETE /v1/nodes/n7/jobs/gpt3-run7"));

  server_.requests.clear();
  logs.Begin({0, 0, 0}, 200);
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));
}

TEST_F(NodeTest, AnUnknownJobRequestsAttachmentAgain) {
  server_.attach_status = 404;
  const RankLogs logs = MakeAttachedJob();
  Turn();
  EXPECT_THAT(server_.requests, SizeIs(1));
  EXPECT_THAT(server_.reports, IsEmpty());
  EXPECT_THAT(logged_.str(), HasSubstr("does not accept the ranks of job gpt3-run7: 404"));
  server_.attach_status = 200;
  Turn(5'000 * kMillisecond);
  EXPECT_THAT(server_.reports, SizeIs(1));
  // The server no longer has the ranks of this node.
  server_.report_answer = R"({"not_attached": ["j-1"]})";
  Turn(5'000 * kMillisecond);
  server_.report_answer = "{}";
  server_.requests.clear();
  Turn(10'000 * kMillisecond);
  EXPECT_THAT(server_.requests, IsEmpty()) << "ranks without a step may have moved to another node";
  logs.End({0, 0, 0}, 3, 1);
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("its assignment")));
}

// The stream was broken when the job ended.
TEST_F(NodeTest, AnAnswerToAReportRevealsThatTheJobEnded) {
  const RankLogs logs = MakeFollowedJob();
  server_.report_answer = R"({"not_attached": ["j-1"]})";
  server_.attach_status = 409;
  server_.attach_problem = R"({"status": 409, "title": "The job has ended"})";
  Turn(5'000 * kMillisecond);
  server_.report_answer = "{}";
  logs.End({0, 0, 0}, 2, 1);
  EXPECT_FALSE(InForce().own);
  Turn();
  EXPECT_TRUE(InForce().own);
  EXPECT_EQ(node_->LastEventId(), "");
  server_.requests.clear();
  Turn(10'000 * kMillisecond);
  EXPECT_THAT(server_.requests, IsEmpty()) << "no rank runs";
  server_.attach_status = 200;
  server_.attach_problem = "";
  server_.job = "j-2";
  logs.End({0, 0, 0}, 3, 1);
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre("PUT /v1/nodes/n7/jobs/gpt3-run7"));
  EXPECT_EQ(node_->LastEventId(), "j-2:0");
}

TEST_F(NodeTest, AnErrorPageOfAProxyDoesNotEndTheJob) {
  const RankLogs logs = MakeFollowedJob();
  server_.attach_status = 404;
  server_.attach_problem = "<html>not here</html>";
  logs.Begin({0, 1, 0}, 101);
  Turn();
  EXPECT_FALSE(InForce().own);
}

}  // namespace
}  // namespace perseus::node
