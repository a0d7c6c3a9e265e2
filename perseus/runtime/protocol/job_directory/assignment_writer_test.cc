#include "perseus/runtime/protocol/job_directory/assignment_writer.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;

class AssignmentWriterTest : public testing::Test {
 protected:
  static Assignment Sweep(std::int64_t until_step) {
    Assignment assignment;
    assignment.clocks = {{0, 0, InstructionKind::kForward, 1080}};
    assignment.until_step = until_step;
    return assignment;
  }
  Assignment InForce() const { return **ReadAssignment(directory_); }

  TemporaryDirectory directory_;
};

TEST_F(AssignmentWriterTest, AssignmentOfBeforeOutliveACoordinatorThatDies) {
  Assignment before;
  before.version = 4;
  before.plan = "plans/4.json";
  ASSERT_TRUE(WriteAssignment(directory_, before));
  {
    auto killed = AssignmentWriter::Open(directory_);
    ASSERT_TRUE(killed);
    EXPECT_FALSE(killed->HasToRestore());
    ASSERT_TRUE(killed->Write(Sweep(20), 10));
    ASSERT_TRUE(killed->Write(Sweep(30), 20));
  }
  EXPECT_EQ(InForce().clocks, Sweep(30).clocks);
  auto next = AssignmentWriter::Open(directory_);
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->HasToRestore());
  ASSERT_TRUE(next->Restore());
  EXPECT_EQ(InForce().plan, "plans/4.json");
  EXPECT_EQ(InForce().version, 7);
  EXPECT_FALSE(InForce().until_step);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "assignment-before.json"));
}

TEST_F(AssignmentWriterTest, WhereNothingWasOrderedRanksGoBackToTheirOwnPlans) {
  auto writer = AssignmentWriter::Open(directory_);
  ASSERT_TRUE(writer->Write(Sweep(20), 10));
  ASSERT_TRUE(writer->Restore());
  EXPECT_TRUE(InForce().own);
}

TEST_F(AssignmentWriterTest, LastingAssignmentAreWhatWasBeforeForTheNext) {
  {
    auto writer = AssignmentWriter::Open(directory_);
    ASSERT_TRUE(writer->Write(Sweep(20), 10));
    Assignment plan;
    plan.plan = "plans/2.json";
    ASSERT_TRUE(writer->Write(plan, 0));
  }
  auto next = AssignmentWriter::Open(directory_);
  EXPECT_FALSE(next->HasToRestore());
  ASSERT_TRUE(next->Write(Sweep(40), 30));
  ASSERT_TRUE(next->Restore());
  EXPECT_EQ(InForce().plan, "plans/2.json");
}

TEST_F(AssignmentWriterTest, AssignmentMayComeBeforeTheDirectory) {
  auto writer = AssignmentWriter::Open(directory_ / "run");
  ASSERT_TRUE(writer) << writer.error().message;
  EXPECT_TRUE(writer->Write(Assignment(), 8));
}

TEST_F(AssignmentWriterTest, OnlyOneAtATime) {
  const auto first = AssignmentWriter::Open(directory_);
  ASSERT_TRUE(first);
  const auto second = AssignmentWriter::Open(directory_);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("another perseus gives this job its assignment"));
}

}  // namespace
}  // namespace perseus::protocol
