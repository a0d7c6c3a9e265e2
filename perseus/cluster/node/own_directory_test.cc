// Tests a node with job directories of other users. Only root can make such directories, so these
// tests need root.
#include "perseus/cluster/node/own_directory.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/node_fixture.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr uid_t kAnn = 65533;
constexpr uid_t kBob = 65532;

class OwnDirectoryTest : public NodeTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
    jobs_ = directory_ / "jobs";
    std::filesystem::create_directory(jobs_);
    StartWithOwnDirectory();
  }
  void StartWithOwnDirectory() {
    NodeOptions options{.name = "n7", .jobs_directory = jobs_, .jobs = {}};
    options.assignments_directory = directory_ / "node";
    node_ = std::make_unique<Node>(
        options, [this](const auto& request) { return server_.Answer(request); }, log_);
  }
  // Makes a job directory as Slurm's prolog does. One rank of the user writes its log.
  RankLogs MakeJobOf(uid_t user, const std::string& name = "17") {
    const RankLogs logs = MakeJob("jobs/" + name);
    logs.Begin({0, 0, 0}, 100);
    std::filesystem::create_directory_symlink("../../node/" + name, jobs_ / name / "node");
    Give(name, user);
    return logs;
  }
  void Give(const std::string& name, uid_t user) {
    for (const char* path : {"", "server.json", "ranks", "ranks/dp0-pp0-tp0.jsonl"}) {
      EXPECT_EQ(::chown((jobs_ / name / path).c_str(), user, user), 0) << path;
    }
  }
  std::vector<std::string> FilesOf(const std::filesystem::path& directory) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::filesystem::path jobs_;
};

TEST_F(OwnDirectoryTest, ANodeWritesNothingIntoAJobDirectoryOfAnotherUser) {
  const RankLogs logs = MakeJobOf(kAnn);
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_THAT(FilesOf(jobs_ / "17"), UnorderedElementsAre("server.json", "ranks", "node"));
  EXPECT_EQ(InForce("jobs/17").PlanOf(0), PlanPath(kPlanA)) << "ranks find it with the link";
  EXPECT_EQ(server_.reports.back()[0].at("acknowledged"), 7);
  struct stat status {};
  ASSERT_EQ(::stat((directory_ / "node/17" / PlanPath(kPlanA)).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644);

  StartWithOwnDirectory();  // A new process knows what its directory has.
  Turn();
  EXPECT_EQ(node_->LastEventId(), "j-1:7");
  Receive(8, 1, {{"0", kPlanB}});
  Turn();
  EXPECT_EQ(InForce("jobs/17").server->version, 8);
  EXPECT_THAT(FilesOf(directory_ / "node/17/plans"),
              UnorderedElementsAre(HasSubstr(kPlanA), HasSubstr(kPlanB)));
}

TEST_F(OwnDirectoryTest, AnotherJobWithTheNameGetsNothingOfTheFirst) {
  MakeJobOf(kAnn);
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  std::filesystem::rename(jobs_ / "17", directory_ / "17");
  Turn();
  EXPECT_THAT(FilesOf(directory_ / "node"), ElementsAre());
  std::filesystem::rename(directory_ / "17", jobs_ / "17");
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_EQ(InForce("jobs/17").version, 1);
  // The node does not run when the directory gets another owner.
  Give("17", kBob);
  StartWithOwnDirectory();
  Turn();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "node/17/assignment.json"));
  EXPECT_THAT(FilesOf(directory_ / "node/17/plans"), ElementsAre());
}

// A user puts links in place of what the node writes.
TEST_F(OwnDirectoryTest, LinksOfAUserLeadTheNodeNowhere) {
  MakeJobOf(kAnn);
  std::filesystem::create_directory(directory_ / "secret");
  std::ofstream(directory_ / "secret/file") << "secret";
  std::filesystem::create_symlink(directory_ / "secret/file", jobs_ / "17/assignment.json");
  std::filesystem::create_symlink(directory_ / "secret/file", jobs_ / "17/coordinator.lock");
  std::filesystem::create_directory_symlink(directory_ / "secret", jobs_ / "17/plans");
  std::filesystem::remove(jobs_ / "17/node");
  std::filesystem::create_directory_symlink(directory_ / "secret", jobs_ / "17/node");
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_THAT(logged_.str(), HasSubstr("coordinator.lock: is a symbolic link"));
  EXPECT_THAT(FilesOf(directory_ / "secret"), ElementsAre("file"));
}

// Bob writes the key of Ann's job into his job directory, which the node finds first.
TEST_F(OwnDirectoryTest, AnotherUserDoesNotTakeAJob) {
  server_.user = std::to_string(kAnn);
  const RankLogs bobs = MakeJobOf(kBob, "1");
  Turn();
  EXPECT_THAT(logged_.str(), HasSubstr("does not accept the ranks of job gpt3-run7: 403"));
  const RankLogs anns = MakeJobOf(kAnn);
  for (int step = 0; step < 20; ++step) {
    bobs.End({0, 0, 0}, step, 0);
    Turn(5'000 * kMillisecond);
  }
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_EQ(InForce("jobs/17").PlanOf(0), PlanPath(kPlanA));
  EXPECT_EQ(InForce("jobs/1").PlanOf(0), "") << "he gets no plan";
  ASSERT_EQ(server_.reports.back().size(), 1U);
  EXPECT_EQ(server_.reports.back()[0].value("steps", json::array()).size(), 0U) << "of his ranks";
}

// A user who can replace the directory of the assignments could lead the node to any file.
TEST_F(OwnDirectoryTest, NoOtherUserMayReplaceTheDirectoryOfTheAssignments) {
  namespace fs = std::filesystem;
  const fs::path parent = directory_ / "bobs";
  const fs::path place = parent / "node";
  MakeJobOf(kAnn);
  const auto start = [&](const fs::path& directory) {
    NodeOptions options{.name = "n7", .jobs_directory = jobs_, .jobs = {}};
    options.assignments_directory = directory;
    node_ = std::make_unique<Node>(
        options, [this](const auto& request) { return server_.Answer(request); }, log_);
    Turn();
  };
  const auto refuses = [&](const char* what) {
    logged_.str("");
    start(place);
    EXPECT_FALSE(fs::exists(place / "17")) << what;
    EXPECT_THAT(logged_.str(), HasSubstr("(choose a directory for assignments that")) << what;
  };
  fs::create_directory(parent);
  ASSERT_EQ(::chown(parent.c_str(), kBob, kBob), 0);
  refuses("Bob owns a directory above it");
  EXPECT_FALSE(fs::exists(place));
  ASSERT_EQ(::chown(parent.c_str(), 0, 0), 0);
  fs::permissions(parent, fs::perms(0775));
  refuses("a group writes above it");
  fs::permissions(parent, fs::perms(01777));
  fs::create_directory(place);
  ASSERT_EQ(::chown(place.c_str(), kBob, kBob), 0);
  refuses("Bob took the name in a sticky directory");
  ASSERT_EQ(::chown(place.c_str(), 0, 0), 0);
  fs::permissions(place, fs::perms(01777));
  refuses("Bob may take the names of jobs");
  fs::permissions(place, fs::perms(0755));

  // Only the start of the node follows links.
  fs::create_directory_symlink(parent, directory_ / "link");
  start(directory_ / "link/node/");
  EXPECT_TRUE(fs::exists(place / "17"));
  fs::remove(directory_ / "link");
  fs::create_directory_symlink(directory_ / "elsewhere", directory_ / "link");
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_TRUE(fs::exists(place / "17/assignment.json"));
}

// The epilog of Slurm may remove a job while the node does not run.
TEST_F(OwnDirectoryTest, PlacesOfVanishedDirectoriesAreDeletedAtTheStart) {
  MakeJobOf(kAnn, "17");
  MakeJobOf(kAnn, "18");
  MakeJobOf(kAnn, "19");
  Turn();
  const std::filesystem::path place = directory_ / "node";
  std::filesystem::create_directory(place / "other");
  ASSERT_THAT(FilesOf(place), UnorderedElementsAre("17", "18", "19", "other"));
  std::filesystem::remove_all(jobs_ / "17");
  std::filesystem::remove_all(jobs_ / "18");
  MakeJobOf(kBob, "18");
  std::filesystem::remove(jobs_ / "18/server.json");
  std::filesystem::remove(jobs_ / "19/server.json");
  StartWithOwnDirectory();
  EXPECT_THAT(FilesOf(place), UnorderedElementsAre("19", "other"));
}

// One job fills its file system. (The directories belong to root, so the node writes into them.)
TEST_F(OwnDirectoryTest, AFullFileSystemOfOneJobHarmsNoOtherJob) {
  std::filesystem::create_directory(jobs_ / "17");
  if (::mount("tmpfs", (jobs_ / "17").c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "no right to mount a file system";
  }
  const auto unmount = [this] { ::umount2((jobs_ / "17").c_str(), MNT_DETACH); };
  const std::filesystem::path filler = jobs_ / "17/filler";
  const RankLogs logs = MakeJobOf(0);
  MakeJob("jobs/18", "other").Begin({0, 0, 0}, 100);
  std::ofstream(filler) << std::string(1 << 20, 'x');
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  node_->Receive({"assignment", "",
                  json{{"job", "j-other"},
                       {"key", "other"},
                       {"version", 1},
                       {"from_step", 1},
                       {"plans", {{"0", kPlanA}}},
                       {"upcoming", json::array()},
                       {"files", json::object()}}
                      .dump()});
  Turn();
  EXPECT_EQ(InForce("jobs/18").PlanOf(0), PlanPath(kPlanA));
  EXPECT_EQ(InForce("jobs/17").PlanOf(0), "");
  EXPECT_THAT(logged_.str(), HasSubstr("No space left on device"));
  std::filesystem::remove(filler);
  Turn(10'000 * kMillisecond);
  Turn();
  EXPECT_EQ(InForce("jobs/17").PlanOf(0), PlanPath(kPlanA)) << "when there is space again";
  unmount();
}

// The file system of the assignments is full when a job appears.
TEST_F(OwnDirectoryTest, APlaceThatCannotBeMadeIsMadeLater) {
  MakeJobOf(kAnn);
  std::ofstream(directory_ / "node") << "no directory";
  Turn();
  EXPECT_THAT(server_.requests, ElementsAre());
  std::filesystem::remove(directory_ / "node");
  Turn();
  EXPECT_TRUE(std::filesystem::exists(directory_ / "node/17/directory"));
}

TEST(UserNames, AreTheNameAndTheId) {
  EXPECT_THAT(NamesOfUser(0), ElementsAre("root", "0"));
  EXPECT_THAT(NamesOfUser(4'000'000'000), ElementsAre("4000000000"));
}

TEST_F(OwnDirectoryTest, AMissingLinkIsAWarning) {
  MakeJobOf(kAnn);
  std::filesystem::remove(jobs_ / "17/node");
  Turn();
  EXPECT_THAT(logged_.str(), HasSubstr("its ranks follow no plan of the server (ln -sT "));
  EXPECT_THAT(logged_.str(), HasSubstr("node/17 "));
}

TEST_F(OwnDirectoryTest, ANodeWritesIntoADirectoryOfItsOwnUser) {
  MakeJobOf(0);
  Turn();
  Receive(7, 1, {{"0", kPlanA}});
  Turn();
  EXPECT_TRUE(std::filesystem::exists(jobs_ / "17/assignment.json"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "node"));
  EXPECT_THAT(logged_.str(), Not(HasSubstr("warning")));
}

TEST(PlacesFor, TheNameIsThatOfTheJobDirectory) {
  const DirectoryId other{1, 2, ::geteuid() + 1};
  EXPECT_EQ(PlacesFor("/run/jobs/17", other, "/n").node, "/n/17");
  EXPECT_EQ(PlacesFor("/run/jobs/17/", other, "/n").node, "/n/17");
  EXPECT_EQ(PlacesFor("/run/jobs/x/../17/.", other, "/n").node, "/n/17");
  EXPECT_EQ(PlacesFor("/", other, "/n").node, "/n/root");
  EXPECT_EQ(PlacesFor("/run/jobs/17", {1, 2, ::geteuid()}, "/n").node, "");
  EXPECT_EQ(PlacesFor("/run/jobs/17", {}, "/n").node, "");
}

}  // namespace
}  // namespace perseus::node
