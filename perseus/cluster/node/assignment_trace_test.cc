#include "perseus/cluster/node/assignment_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace perseus::node {
namespace {

using protocol::NodeSpan;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kTrace(32, 'a');
const std::string kPlanSpan(16, 'b');

protocol::AssignmentEvent Numbered(std::int64_t version, const std::string& job = "j-1") {
  protocol::AssignmentEvent event;
  event.job = job;
  event.version = version;
  event.traceparent = "00-" + kTrace + "-" + kPlanSpan + "-01";
  return event;
}

TEST(AssignmentTrace, HasTwoSpansOfAnAssignment) {
  AssignmentTrace trace;
  trace.Received(Numbered(3), 1'000'000);
  trace.Applied(2, 1'500'000);
  EXPECT_THAT(trace.unsent(), IsEmpty());
  trace.Follows({3, 10, 5'000'000, 6'000'000});  // It is not applied yet.
  EXPECT_THAT(trace.unsent(), IsEmpty());
  trace.Applied(3, 2'000'000);
  trace.Applied(3, 3'000'000);
  trace.Follows({2, 9, 4'000'000, 5'000'000});
  trace.Follows({3, 10, 5'000'000, 6'000'000});
  trace.Follows({3, 10, 5'000'000, 6'000'000});
  ASSERT_THAT(trace.unsent(), SizeIs(2));
  const NodeSpan& applied = trace.unsent()[0];
  const NodeSpan& step = trace.unsent()[1];
  EXPECT_EQ(applied, (NodeSpan{NodeSpan::Kind::kApplied, kTrace, applied.span, kPlanSpan, 1'000,
                               2'000, 3, -1}));
  EXPECT_EQ(step, (NodeSpan{NodeSpan::Kind::kFirstStep, kTrace, step.span, applied.span, 5'000,
                            6'000, 3, 10}));
  EXPECT_NE(step.span, applied.span);
  trace.Sent();
  EXPECT_THAT(trace.unsent(), IsEmpty());
}

TEST(AssignmentTrace, ARepeatedOrOlderAssignmentBeginsNothing) {
  AssignmentTrace trace;
  trace.Received(Numbered(3), 1'000);
  trace.Applied(3, 2'000);
  trace.Received(Numbered(3), 3'000);
  trace.Received(Numbered(2), 3'000);
  trace.Applied(3, 4'000);
  EXPECT_THAT(trace.unsent(), SizeIs(1));
  trace.Received(Numbered(1, "j-2"), 5'000);  // Versions count from 1 in each job.
  trace.Applied(1, 6'000);
  EXPECT_THAT(trace.unsent(), SizeIs(2));
}

TEST(AssignmentTrace, AClockThatIsSetBackGivesNoNegativeTime) {
  AssignmentTrace trace;
  trace.Received(Numbered(1), 9'000'000);
  trace.Applied(1, 1'000'000);
  ASSERT_THAT(trace.unsent(), SizeIs(1));
  EXPECT_EQ(trace.unsent()[0].begin_us, trace.unsent()[0].end_us);
}

TEST(AssignmentTrace, WithoutAValidTraceNothingIsReported) {
  const std::string zero = "00-" + kTrace + "-0000000000000000-01";
  for (const std::string& parent : {std::string(), std::string("00-x"), zero}) {
    AssignmentTrace trace;
    protocol::AssignmentEvent event = Numbered(1);
    event.traceparent = parent;
    trace.Received(event, 1);
    trace.Applied(1, 2);
    trace.Follows({1, 0, 3, 4});
    EXPECT_THAT(trace.unsent(), IsEmpty()) << parent;
  }
}

TEST(AssignmentTrace, WithoutAServerTheNewestSpansStay) {
  AssignmentTrace trace;
  for (int version = 1; version <= 20; ++version) {
    trace.Received(Numbered(version), version);
    trace.Applied(version, version);
  }
  ASSERT_THAT(trace.unsent(), SizeIs(8));
  EXPECT_EQ(trace.unsent().back().version, 20);
}

}  // namespace
}  // namespace perseus::node
