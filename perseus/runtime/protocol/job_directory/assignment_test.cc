#include "perseus/runtime/protocol/job_directory/assignment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/reader_lock.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Assignment Profiling() {
  Assignment assignment;
  assignment.version = 8;
  assignment.from_step = 9'007'199'254'740'992;  // 2^53.
  assignment.record = false;
  assignment.clocks = {{0, 0, InstructionKind::kForward, 1410},
                       {3, 1, InstructionKind::kBackwardWeight, 210}};
  return assignment;
}

TEST(Assignment, SurviveTheirFile) {
  Assignment following;
  following.plan = "plans/7.json";
  Assignment apart;
  apart.plan = "plans/p-12.json";
  apart.plans = {{1, "plans/p-9a.json"}, {12, "plans/p-7.json"}};
  apart.server = {"j-0123456789abcdef", 3};
  Assignment own;
  own.own = true;
  own.from_step = 7;
  own.until_step = 9;
  for (const Assignment& assignment : {Assignment(), Profiling(), following, apart, own}) {
    EXPECT_EQ(ValueOf(ParseAssignment(FormatAssignment(assignment), "assignment.json")),
              assignment);
  }
}

TEST(Assignment, APipelineThatIsNotListedFollowsThePlanOfAll) {
  Assignment assignment;
  EXPECT_EQ(assignment.PlanOf(0), "");
  assignment.plans = {{1, "plans/b.json"}};
  EXPECT_EQ(assignment.PlanOf(0), "");
  EXPECT_EQ(assignment.PlanOf(1), "plans/b.json");
  assignment.plan = "plans/a.json";
  EXPECT_EQ(assignment.PlanOf(0), "plans/a.json");
  EXPECT_EQ(assignment.PlanOf(1), "plans/b.json");
}

struct BadAssignment {
  const char* name;
  const char* text;
  const char* message;
};
void PrintTo(const BadAssignment& bad, std::ostream* out) { *out << bad.name; }

class BadAssignmentTest : public testing::TestWithParam<BadAssignment> {};
TEST_P(BadAssignmentTest, AreAnErrorThatNamesThePlace) {
  EXPECT_THAT(ParseAssignment(GetParam().text, "assignment.json"),
              FailsWith(HasSubstr(GetParam().message)));
}
INSTANTIATE_TEST_SUITE_P(
    All, BadAssignmentTest,
    testing::Values(
        BadAssignment{"Empty", "", "assignment.json:1: not JSON"},
        BadAssignment{"OtherFile", R"({"format":"perseus-plan"})", "has no key \"format\""},
        BadAssignment{"Newer",
                      R"({"perseus_assignment":2,"version":1,"from_step":0,"record":true})",
                      "perseus_assignment is not 1"},
        BadAssignment{"NoVersion", R"({"perseus_assignment":1,"from_step":0,"record":true})",
                      "version is missing"},
        BadAssignment{"VersionZero",
                      R"({"perseus_assignment":1,"version":0,"from_step":0,"record":true})",
                      "version is not a whole number from 1"},
        BadAssignment{
            "HugeStep",
            R"({"perseus_assignment":1,"version":1,"from_step":18446744073709551615,"record":true})",
            "from_step is not a whole number"},
        BadAssignment{
            "EndsBeforeItBegins",
            R"({"perseus_assignment":1,"version":1,"from_step":5,"until_step":5,"record":true})",
            "until_step 5 is not after from_step 5"},
        BadAssignment{
            "OwnAndPlan",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"own":true,"plan":"a"})",
            "own is true"},
        BadAssignment{"RecordIsText",
                      R"({"perseus_assignment":1,"version":1,"from_step":0,"record":"yes"})",
                      "record is neither true nor false"},
        BadAssignment{
            "Both",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"plan":"p","clocks":[]})",
            "both plan and clocks"},
        BadAssignment{
            "PlanElsewhere",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"plan":"../p.json"})",
            "not a path within the job directory"},
        BadAssignment{
            "PlansAndClocks",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"plans":{},"clocks":[]})",
            "both plan and clocks"},
        BadAssignment{
            "PlansAreAList",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"plans":["p"]})",
            "plans is not an object"},
        BadAssignment{
            "NoPipeline",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"plans":{"01":"p"}})",
            "plans has \"01\", which is not a dp_rank"},
        BadAssignment{
            "PlanOfAPipelineElsewhere",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"plans":{"1":"/etc/p"}})",
            "plans.1 \"/etc/p\" is not a path within the job directory"},
        BadAssignment{
            "ServerWithoutVersion",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"server":{"job":"j"}})",
            "server.version is missing"},
        BadAssignment{
            "NoSuchKind",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"clocks":[{"pp_rank":0,"chunk":0,"kind":"load","frequency_mhz":1}]})",
            "clocks[0].kind \"load\" is not a computation"},
        BadAssignment{
            "NoClock",
            R"({"perseus_assignment":1,"version":1,"from_step":0,"record":true,"clocks":[{"pp_rank":0,"chunk":0,"kind":"forward","frequency_mhz":0}]})",
            "clocks[0].frequency_mhz is not"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(AssignmentFile, IsNothingBeforeItWasWrittenAndWholeAfterwards) {
  const TemporaryDirectory temporary;
  const std::filesystem::path& directory = temporary.path();
  auto read = ReadAssignment(directory);
  ASSERT_TRUE(read) << read.error().Message();
  EXPECT_FALSE(read->has_value());

  ASSERT_TRUE(WriteAssignment(directory, Profiling()));
  read = ReadAssignment(directory);
  ASSERT_TRUE(read) << read.error().Message();
  EXPECT_EQ(*read, Profiling());

  std::ofstream(directory / "assignment.json") << "{";
  read = ReadAssignment(directory);
  EXPECT_THAT(read, FailsWith(HasSubstr("assignment.json:1: not JSON")));
}

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

// Any user who may read the lock can lock it, also if an earlier version of Perseus created it.
TEST_F(AssignmentWriterTest, AReaderDoesNotKeepCoordinatorsFromTheLock) {
  const std::filesystem::path path = directory_ / "coordinator.lock";
  std::ofstream(path) << "";
  const FileDescriptor reader = LockAsReader(path);
  EXPECT_TRUE(AssignmentWriter::OpenForNode({directory_.path(), directory_ / "node"}));
  {
    const auto writer = AssignmentWriter::Open(directory_.path());
    ASSERT_TRUE(writer) << writer.error().Message();
    EXPECT_FALSE(AssignmentWriter::Open(directory_.path()));
    EXPECT_FALSE(AssignmentWriter::OpenForNode({directory_.path(), directory_ / "node"}));
    EXPECT_THROW(LockAsReader(path), std::runtime_error);
  }
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  const FileDescriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(AssignmentWriter::Open(directory_.path()));
  // The other user has the old file open.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(other.get(), F_OFD_SETLK, &lock), 0);
  EXPECT_TRUE(AssignmentWriter::OpenForNode({directory_.path(), directory_ / "node"}));
  EXPECT_TRUE(AssignmentWriter::Open(directory_.path()));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0644));
}

TEST_F(AssignmentWriterTest, AssignmentOfBeforeOutliveACoordinatorThatDies) {
  Assignment before;
  before.version = 4;
  before.plan = "plans/4.json";
  ASSERT_TRUE(WriteAssignment(directory_, before));
  {
    auto killed = ValueOf(AssignmentWriter::Open(directory_));
    EXPECT_FALSE(killed.HasToRestore());
    ASSERT_TRUE(killed.Write(Sweep(20), 10));
    ASSERT_TRUE(killed.Write(Sweep(30), 20));
  }
  EXPECT_EQ(InForce().clocks, Sweep(30).clocks);
  auto next = ValueOf(AssignmentWriter::Open(directory_));
  EXPECT_TRUE(next.HasToRestore());
  ASSERT_TRUE(next.Restore());
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
  EXPECT_TRUE(ValueOf(AssignmentWriter::Open(directory_ / "run")).Write(Assignment(), 8));
}

// The job directory belongs to the user of the job, and the other place to the node.
class TwoPlacesTest : public AssignmentWriterTest {
 protected:
  TwoPlacesTest() {
    std::filesystem::create_directories(places_.job);
    std::filesystem::create_directories(directory_ / "node/17");
    std::filesystem::create_directory_symlink("../../node/17", places_.job / kNodeLink);
  }
  // Writes an assignment of the server, as the node does.
  std::int64_t WriteAsNode(std::int64_t server_version) {
    Assignment assignment;
    assignment.plan = "plans/p-1.json";
    assignment.server = ServerOrigin{"j-1", server_version};
    auto writer = ValueOf(AssignmentWriter::OpenForNode(NodesPlaces()));
    EXPECT_TRUE(writer.AddPlan("p-1", "{}"));
    return ValueOf(writer.Write(assignment, 0));
  }
  AssignmentPlaces NodesPlaces() const { return {places_.job, directory_ / "node/17"}; }
  Assignment Newest() const { return **ReadAssignment(places_.job); }
  std::vector<std::string> FilesOfJob() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(places_.job)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  AssignmentPlaces places_{directory_ / "jobs/17", directory_ / "jobs/17/node"};
};

TEST_F(TwoPlacesTest, ANodeWritesNothingIntoTheJobDirectory) {
  EXPECT_EQ(WriteAsNode(1), 1);
  EXPECT_EQ(WriteAsNode(2), 2);
  EXPECT_EQ(Newest().server->version, 2);
  EXPECT_EQ(PlaceOfPlan(NodesPlaces(), Newest(), Newest().plan), NodesPlaces().node);
  EXPECT_THAT(FilesOfJob(), ElementsAre("node"));
}

TEST_F(TwoPlacesTest, TheHigherVersionCounts) {
  WriteAsNode(1);
  auto verify = ValueOf(AssignmentWriter::Open(places_.job));
  ASSERT_TRUE(verify.Write(Sweep(20), 10));
  EXPECT_EQ(Newest().version, 2);
  EXPECT_EQ(Newest().clocks, Sweep(20).clocks);
  EXPECT_THAT(AssignmentWriter::OpenForNode(NodesPlaces()),
              FailsWith(HasSubstr("another perseus gives this job its assignment")));
  // The assignment of the server is in force again, with the plan in the place of the node.
  ASSERT_TRUE(verify.Restore());
  EXPECT_EQ(Newest().version, 3);
  EXPECT_EQ(Newest().server->version, 1);
  EXPECT_EQ(PlaceOfPlan(NodesPlaces(), Newest(), Newest().plan), NodesPlaces().node);
}

// The node cannot delete assignment-before.json.
TEST_F(TwoPlacesTest, AnAssignmentOfTheNodeEndsATemporaryOneOfAKilledCoordinator) {
  WriteAsNode(1);
  {
    auto killed = ValueOf(AssignmentWriter::Open(places_.job));
    ASSERT_TRUE(killed.Write(Sweep(20), 10));
  }
  EXPECT_EQ(WriteAsNode(2), 3);
  EXPECT_TRUE(std::filesystem::exists(places_.job / "assignment-before.json"));
  auto next = ValueOf(AssignmentWriter::Open(places_.job));
  EXPECT_FALSE(next.HasToRestore());
  EXPECT_EQ(next.before().server->version, 2);
}

TEST_F(TwoPlacesTest, OnlyTrustedLinksAreFollowed) {
  EXPECT_EQ(FindPlaces(places_.job).node, places_.node);
  EXPECT_EQ(FindPlaces(directory_ / "node/17").node, "") << "no link";
  if (::geteuid() == 0) {
    ASSERT_EQ(::lchown(places_.node.c_str(), 65533, 65533), 0);
    EXPECT_EQ(FindPlaces(places_.job).node, "") << "it belongs to another user";
    ASSERT_EQ(::chown(places_.job.c_str(), 65533, 65533), 0);
    EXPECT_EQ(FindPlaces(places_.job).node, places_.node) << "to the owner of the job directory";
  }
  std::filesystem::remove(places_.node);
  std::filesystem::create_directory(places_.node);
  EXPECT_EQ(FindPlaces(places_.job).node, "") << "a directory";
}

TEST_F(AssignmentWriterTest, OnlyOneAtATime) {
  const auto first = AssignmentWriter::Open(directory_);
  ASSERT_TRUE(first);
  EXPECT_THAT(AssignmentWriter::Open(directory_),
              FailsWith(HasSubstr("another perseus gives this job its assignment")));
}

}  // namespace
}  // namespace perseus::protocol
