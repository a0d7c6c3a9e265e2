#include "perseus/runtime/access/caller.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using protocol::Refusal;
using ::testing::HasSubstr;

constexpr pid_t kPid = 4242;
constexpr uid_t kUser = 1000;
constexpr const char* kAllCapabilities = "000001ffffffffff";
constexpr const char* kContainersCapabilities = "00000000a80425fb";  // Docker's: no CAP_SYS_ADMIN.

const GpuFile kGpu{"GPU-a", "/dev/nvidia3"};

// Tests with an imitation of /proc and /sys.
class CallerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.root = root_;
    host_.agent_uid = 0;
    Write("proc/self/cgroup", "5:devices:/system.slice/perseus-agent.service\n0::/\n");
    Namespace("self", "user:[4026531837]");
    Process(7000, kUser);
  }

  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void Namespace(const std::string& process, const std::string& user_namespace) {
    const fs::path link = root_ / "proc" / process / "ns/user";
    fs::create_directories(link.parent_path());
    fs::remove(link);
    fs::create_symlink(user_namespace, link);
  }
  void Process(int started, uid_t uid, const char* capabilities = kContainersCapabilities) {
    Write("proc/4242/stat", fmt::format("4242 (train) R 1 4242 4242 0 -1 4194304 100 0 0 0 0 0 0 0 "
                                        "20 0 1 0 {} 3133440 390 18446744073709551615\n",
                                        started));
    Write("proc/4242/status",
          fmt::format("Name:\ttrain\nUid:\t{0}\t{0}\t{0}\t{0}\nGid:\t100\t100\t100\t100\n"
                      "Groups:\t44 100 \nCapEff:\t{1}\n",
                      uid, capabilities));
    Namespace("4242", "user:[4026531837]");
    Cgroups("0::/\n");
  }
  void Cgroups(const std::string& lines) { Write("proc/4242/cgroup", lines); }
  Caller Identified(uid_t uid = kUser) {
    Answer<Caller> caller = Identify(host_, {kPid, uid, 0});
    EXPECT_TRUE(caller) << caller.error().message;
    return caller ? WithCgroups(host_, *caller).value_or(Caller()) : Caller();
  }
  TemporaryDirectory root_;
  Host host_;
};

TEST_F(CallerTest, IsIdentifiedByPidUserStartTimeAndCgroups) {
  Cgroups(
      "12:cpu,cpuacct:/slurm/uid_1000\n5:devices:/slurm/uid_1000/job_17\n1:name=systemd:/a:b\n"
      "0::/system.slice\n");
  const Caller caller = Identified();
  EXPECT_EQ(caller.process, (ProcessId{kPid, 7000}));
  EXPECT_EQ(caller.uid, kUser);
  EXPECT_EQ(caller.gid, 100U);
  EXPECT_EQ(caller.groups, (std::vector<gid_t>{44, 100}));
  EXPECT_FALSE(caller.is_administrator);
  ASSERT_EQ(caller.cgroups.size(), 4U);
  EXPECT_EQ(caller.cgroups[0].controllers, "cpu,cpuacct");
  EXPECT_EQ(caller.cgroups[1].path, "/slurm/uid_1000/job_17");
  EXPECT_EQ(caller.cgroups[2].path, "/a:b");
  EXPECT_EQ(caller.cgroups[3].controllers, "");
}

TEST_F(CallerTest, RefusesCallersThatEndedAreHiddenOrChangedUser) {
  struct Row {
    protocol::Peer peer;
    const char* message;
  };
  for (const Row& row :
       {Row{{0, kUser, 0}, "PID namespace"}, Row{{4243, kUser, 0}, "process 4243 ended"},
        Row{{kPid, 2000, 0}, "process 4242 runs as user 1000 now"}}) {
    EXPECT_THAT(Identify(host_, row.peer), FailsAs(Refusal::kNotAllowed, HasSubstr(row.message)));
  }
  Write("proc/4242/status", "Name:\tUid:\t1000\n");
  EXPECT_FALSE(Identify(host_, {kPid, kUser, 0}));
}

TEST_F(CallerTest, AProcessThatReusesThePidIsAnotherCaller) {
  const Caller caller = Identified();
  EXPECT_TRUE(LookAgain(host_, caller));
  Process(7001, kUser);
  EXPECT_EQ(LookAgain(host_, caller).error().code, Refusal::kNotAllowed);
  EXPECT_THAT(LookAgain(host_, caller).error().message, HasSubstr("ended"));
  fs::remove_all(root_ / "proc/4242");
  EXPECT_FALSE(LookAgain(host_, caller));
}

TEST_F(CallerTest, TheCgroupsAreTheCurrentOnesOfTheSameProcess) {
  const Caller before = Identified();
  Cgroups("0::/slurm/job_17\n");
  EXPECT_EQ(WithCgroups(host_, before)->cgroups[0].path, "/slurm/job_17");
  Process(7001, kUser);
  EXPECT_EQ(WithCgroups(host_, before).error().code, Refusal::kNotAllowed);
}

TEST_F(CallerTest, AdministratorsAreThoseOfTheDriver) {
  struct Row {
    const char* name;
    uid_t agent_uid;
    uid_t uid;
    const char* capabilities;
    const char* user_namespace;
    bool is_administrator;
  };
  constexpr const char* kOurs = "user:[4026531837]";
  constexpr const char* kOther = "user:[4026532000]";
  for (const Row& row :
       {Row{"root", 0, 0, kAllCapabilities, kOurs, true},
        Row{"root in a container", 0, 0, kContainersCapabilities, kOurs, false},
        Row{"root in its own user namespace", 0, 0, kAllCapabilities, kOther, false},
        Row{"an able user", 0, kUser, kAllCapabilities, kOurs, false},
        Row{"the user of an ordinary agent", kUser, kUser, "0", kOurs, true},
        Row{"that user, in a namespace", kUser, kUser, kAllCapabilities, kOther, false},
        Row{"another user", 2000, kUser, kAllCapabilities, kOurs, false},
        Row{"nonsense", 0, 0, "all", kOurs, false}}) {
    SCOPED_TRACE(row.name);
    host_.agent_uid = row.agent_uid;
    Process(7000, row.uid, row.capabilities);
    Namespace("4242", row.user_namespace);
    const Caller caller = Identified(row.uid);
    EXPECT_EQ(caller.is_administrator, row.is_administrator);
    EXPECT_EQ(HasNamedRightTo(caller, "GPU-virtual", {}), row.is_administrator);
  }
}

TEST_F(CallerTest, GrantsMatchGpuAndUserOrCgroup) {
  Cgroups("7:freezer:/slurm/uid_1000/job_17/step_0\n5:devices:/user.slice\n0::/init.scope\n");
  struct Row {
    const char* name;
    protocol::Grant grant;
    bool has_right;
  };
  for (const Row& row :
       {Row{"the user", {{"GPU-b", "GPU-a"}, kUser, std::nullopt}, true},
        Row{"another user", {{"GPU-a"}, 2000, std::nullopt}, false},
        Row{"another GPU", {{"GPU-b"}, kUser, std::nullopt}, false},
        Row{"nobody", {{"GPU-a"}, std::nullopt, std::nullopt}, false},
        Row{"the job", {{"GPU-a"}, std::nullopt, "/slurm/uid_1000/job_17"}, true},
        Row{"all jobs", {{"GPU-a"}, std::nullopt, "/slurm/"}, true},
        Row{"everybody", {{"GPU-a"}, std::nullopt, "/"}, true},
        Row{"another job", {{"GPU-a"}, std::nullopt, "/slurm/uid_1000/job_1"}, false},
        Row{"a job's step", {{"GPU-a"}, std::nullopt, "/slurm/uid_1000/job_17/step_1"}, false}}) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(HasNamedRightTo(Identified(), "GPU-a", {{row.grant}}), row.has_right);
  }
}

TEST_F(CallerTest, TheChildJoinsTheCgroupsThatHaveRulesForDevices) {
  struct Row {
    const char* name;
    const char* cgroups;
    std::vector<std::string> joined;
  };
  Write("sys/fs/cgroup/unified/cgroup.controllers", "");
  Write("sys/fs/cgroup/devices/devices.list", "");
  for (const Row& row :
       {Row{"both",
            "7:freezer:/f\n5:devices:/slurm/job_17\n1:name=systemd:/s\n0::/slurm/job_17/step\n",
            {"devices/slurm/job_17/cgroup.procs", "unified/slurm/job_17/step/cgroup.procs"}},
        Row{"a shared hierarchy", "5:cpu,devices:/job\n", {"devices/job/cgroup.procs"}},
        Row{"the agent's own", "5:devices:/system.slice/perseus-agent.service\n0::/\n", {}},
        Row{"the same name elsewhere",
            "0::/system.slice/perseus-agent.service\n",
            {"unified/system.slice/perseus-agent.service/cgroup.procs"}}}) {
    SCOPED_TRACE(row.name);
    Cgroups(row.cgroups);
    const auto identity = ValueOf(IdentityOf(host_, Identified()));
    EXPECT_EQ(identity.uid, kUser);
    EXPECT_EQ(identity.gid, 100U);
    EXPECT_EQ(identity.groups, (std::vector<gid_t>{44, 100}));
    std::vector<fs::path> joined;
    for (const std::string& procs : row.joined) joined.push_back(root_ / "sys/fs/cgroup" / procs);
    EXPECT_EQ(identity.cgroup_procs, joined);
  }
}

TEST_F(CallerTest, CgroupV2AloneIsMountedAtTheTop) {
  Write("sys/fs/cgroup/cgroup.controllers", "cpu memory pids");
  Cgroups("0::/slurm/job_17\n");
  EXPECT_EQ(IdentityOf(host_, Identified())->cgroup_procs,
            std::vector<fs::path>{root_ / "sys/fs/cgroup/slurm/job_17/cgroup.procs"});
}

TEST_F(CallerTest, ACgroupThatTheAgentCannotSeeIsNotPassedOver) {
  Cgroups("0::/slurm/job_17\n");
  EXPECT_THAT(IdentityOf(host_, Identified()),
              FailsAs(Refusal::kUnavailable, HasSubstr("mount the host's /sys/fs/cgroup")));

  Write("sys/fs/cgroup/cgroup.controllers", "");
  Cgroups("0::/../../slurm/job_17\n");
  EXPECT_THAT(IdentityOf(host_, Identified()),
              FailsWith(HasSubstr("cgroup namespace of the host")));
}

TEST_F(CallerTest, ARefusalNamesTheRemedy) {
  const Caller ann = Identified();
  struct Row {
    int error;
    const char* cause;
    const char* remedy;
  };
  for (const Row& row :
       {Row{EPERM, "the cgroup of process 4242 does not give it /dev/nvidia3", "batch system"},
        Row{EACCES, "the permissions of /dev/nvidia3", "group of the file"},
        Row{ENOENT, "/dev/nvidia3: No such file", "perseus gpu grant GPU-a --uid 1000"}}) {
    const protocol::Refused refused = NoRightTo(ann, kGpu, row.error);
    EXPECT_EQ(refused.code, Refusal::kNotAllowed);
    EXPECT_THAT(refused.message, HasSubstr("user 1000 may not lease GPU-a"));
    EXPECT_THAT(refused.message, HasSubstr(row.cause));
    EXPECT_THAT(refused.message, HasSubstr(row.remedy));
  }
  EXPECT_THAT(NoRightTo(ann, {"GPU-v", {}}, 0).message, HasSubstr("no device file"));
}

// These tests ask the real kernel about this process.
TEST(ThisHost, IdentifiesThisProcess) {
  const Host host = ThisHost();
  const Caller self = ValueOf(Identify(host, {::getpid(), ::geteuid(), ::getegid()}));
  EXPECT_GT(self.process.started, 0U);
  EXPECT_TRUE(LookAgain(host, self));
}

TEST(IsWithinCgroup, GoesNameByName) {
  struct Row {
    const char* path;
    const char* ancestor;
    bool is_within;
  };
  for (const Row& row :
       {Row{"/slurm/job_17", "/slurm/job_17", true},
        Row{"/slurm/job_17/step_0", "/slurm/job_17", true},
        Row{"/slurm/job_17", "/slurm/job_1", false}, Row{"/slurm/job_1", "/slurm/job_17", false},
        Row{"/slurm", "/slurm/job_17", false}, Row{"/slurm/job_17", "/slurm/job_17/", true},
        Row{"/slurm//job_17", "//slurm/job_17", true}, Row{"/", "/", true},
        Row{"/anything", "/", true}, Row{"/slurm/job_17 (deleted)", "/slurm/job_17", false},
        Row{"/slurm/../job_17", "/slurm", false}, Row{"/slurm", "/slurm/..", false},
        Row{"/..", "/", false}, Row{"slurm/job_17", "/slurm", false}, Row{"/slurm", "slurm", false},
        Row{"/slurm", "", false}}) {
    EXPECT_EQ(IsWithinCgroup(row.path, row.ancestor), row.is_within)
        << row.path << " in " << row.ancestor;
  }
}

}  // namespace
}  // namespace perseus::agent
