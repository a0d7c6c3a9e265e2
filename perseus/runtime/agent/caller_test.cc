#include "perseus/runtime/agent/caller.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <map>

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

// A test may not make device files, so /dev/null, which also has a device number, stands for the
// file of the GPU.
const dev_t kNull = makedev(1, 3);
const GpuFile kGpu{"GPU-a", kNull};

// An imitation of /proc and /sys.
class CallerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.root = root_;
    host_.agent_uid = 0;
    host_.duplicate = [this](pid_t pid, int fd) { return Duplicate(pid, fd); };
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
          fmt::format("Name:\ttrain\nUid:\t{0}\t{0}\t{0}\t{0}\nCapEff:\t{1}\n", uid, capabilities));
    Namespace("4242", "user:[4026531837]");
    Cgroups("0::/\n");
  }
  void Cgroups(const std::string& lines) { Write("proc/4242/cgroup", lines); }
  // Makes process 4242 have `file` open with these flags of open(2).
  void OpenFile(int fd, const fs::path& file, int flags) {
    const fs::path link = root_ / "proc/4242/fd" / std::to_string(fd);
    fs::create_directories(link.parent_path());
    fs::create_symlink(file, link);
    open_flags_[fd] = flags;
  }
  FileDescriptor Duplicate(pid_t pid, int fd) {
    if (!open_flags_.contains(fd)) return FileDescriptor();
    const fs::path link = root_ / "proc" / std::to_string(pid) / "fd" / std::to_string(fd);
    return FileDescriptor(::open(link.c_str(), open_flags_[fd] | O_CLOEXEC));
  }

  Caller Identified(uid_t uid = kUser) {
    Answer<Caller> caller = Identify(host_, {kPid, uid, 0});
    EXPECT_TRUE(caller) << caller.error().message;
    return caller.value_or(Caller());
  }
  Answer<Right> RightOf(const std::vector<protocol::Grant>& grants = {}, const GpuFile& gpu = kGpu,
                        uid_t uid = kUser) {
    return RightTo(host_, Identified(uid), gpu, grants);
  }

  TemporaryDirectory root_;
  Host host_;
  std::map<int, int> open_flags_;
};

TEST_F(CallerTest, IsIdentifiedByPidUserStartTimeAndCgroups) {
  Cgroups(
      "12:cpu,cpuacct:/slurm/uid_1000\n5:devices:/slurm/uid_1000/job_17\n1:name=systemd:/a:b\n"
      "0::/system.slice\n");
  const Caller caller = Identified();
  EXPECT_EQ(caller.process, (ProcessId{kPid, 7000}));
  EXPECT_EQ(caller.uid, kUser);
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
    const Answer<Caller> caller = Identify(host_, row.peer);
    ASSERT_FALSE(caller);
    EXPECT_EQ(caller.error().code, Refusal::kNotAllowed);
    EXPECT_THAT(caller.error().message, HasSubstr(row.message));
  }
  Write("proc/4242/status", "Name:\tUid:\t1000\n");
  EXPECT_FALSE(Identify(host_, {kPid, kUser, 0}));
}

TEST_F(CallerTest, AProcessThatReusesThePidIsAnotherCaller) {
  const Caller caller = Identified();
  EXPECT_TRUE(LookAgain(host_, caller));
  const std::vector<protocol::Grant> grants{{{"GPU-a"}, kUser, std::nullopt}};
  EXPECT_TRUE(RightTo(host_, caller, kGpu, grants));
  Process(7001, kUser);
  EXPECT_EQ(LookAgain(host_, caller).error().code, Refusal::kNotAllowed);
  EXPECT_THAT(RightTo(host_, caller, kGpu, grants).error().message, HasSubstr("ended"));
  fs::remove_all(root_ / "proc/4242");
  EXPECT_FALSE(LookAgain(host_, caller));
  EXPECT_FALSE(RightTo(host_, caller, kGpu, grants));
}

TEST_F(CallerTest, IdentifyingAgainReadsTheCurrentCgroups) {
  const Caller before = Identified();
  Cgroups("0::/slurm/job_17\n");
  EXPECT_EQ(LookAgain(host_, before)->cgroups[0].path, "/slurm/job_17");
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
    EXPECT_EQ(Identified(row.uid).is_administrator, row.is_administrator);
    const Answer<Right> right = RightOf({}, {"GPU-virtual", std::nullopt}, row.uid);
    EXPECT_EQ(right.has_value(), row.is_administrator);
    if (right) {
      EXPECT_EQ(*right, Right::kAdministrator);
    }
  }
}

TEST_F(CallerTest, GrantsMatchGpuAndUserOrCgroup) {
  Cgroups("7:freezer:/slurm/uid_1000/job_17/step_0\n5:devices:/user.slice\n0::/init.scope\n");
  struct Row {
    const char* name;
    protocol::Grant grant;
    std::optional<Right> right;
  };
  for (const Row& row :
       {Row{"the user", {{"GPU-b", "GPU-a"}, kUser, std::nullopt}, Right::kGrantToUser},
        Row{"another user", {{"GPU-a"}, 2000, std::nullopt}, std::nullopt},
        Row{"another GPU", {{"GPU-b"}, kUser, std::nullopt}, std::nullopt},
        Row{"nobody", {{"GPU-a"}, std::nullopt, std::nullopt}, std::nullopt},
        Row{"the job", {{"GPU-a"}, std::nullopt, "/slurm/uid_1000/job_17"}, Right::kGrantToCgroup},
        Row{"all jobs", {{"GPU-a"}, std::nullopt, "/slurm/"}, Right::kGrantToCgroup},
        Row{"everybody", {{"GPU-a"}, std::nullopt, "/"}, Right::kGrantToCgroup},
        Row{"another job", {{"GPU-a"}, std::nullopt, "/slurm/uid_1000/job_1"}, std::nullopt},
        Row{"a job's step",
            {{"GPU-a"}, std::nullopt, "/slurm/uid_1000/job_17/step_1"},
            std::nullopt}}) {
    SCOPED_TRACE(row.name);
    const Answer<Right> right = RightOf({row.grant});
    ASSERT_EQ(right.has_value(), row.right.has_value());
    if (right) {
      EXPECT_EQ(*right, *row.right);
    }
  }
}

TEST_F(CallerTest, ADevicesCgroupThatNamesTheGpuGrantsTheRight) {
  Cgroups("5:devices:/slurm/job_17\n");
  EXPECT_FALSE(RightOf()) << "no list";
  const char* list = "sys/fs/cgroup/devices/slurm/job_17/devices.list";
  Write(list, "a *:* rwm\n");
  EXPECT_FALSE(RightOf()) << "nobody confined it, which is no proof";
  Write(list, "c 5:0 rwm\nc 1:3 rw\n");
  ASSERT_TRUE(RightOf());
  EXPECT_EQ(*RightOf(), Right::kDevicesCgroup);
  EXPECT_FALSE(RightOf({}, {"GPU-b", makedev(1, 4)}));
  EXPECT_FALSE(RightOf({}, {"GPU-virtual", std::nullopt}));
  Cgroups("5:devices:/../slurm/job_17\n");
  EXPECT_FALSE(RightOf()) << "a path out of what the agent can see";
  Cgroups("5:memory:/slurm/job_17\n0::/slurm/job_17\n");
  EXPECT_FALSE(RightOf()) << "another hierarchy's path";
}

TEST_F(CallerTest, TheDeviceFileOpenForReadingAndWritingGrantsTheRight) {
  struct Row {
    const char* name;
    const char* file;
    int flags;
    bool has_right;
  };
  for (const Row& row : {Row{"read and write", "/dev/null", O_RDWR, true},
                         Row{"unchecked by the kernel", "/dev/null", O_PATH, false},
                         Row{"unchecked, with more flags", "/dev/null", O_PATH | O_RDWR, false},
                         Row{"read only", "/dev/null", O_RDONLY, false},
                         Row{"write only", "/dev/null", O_WRONLY, false},
                         Row{"another device", "/dev/zero", O_RDWR, false},
                         Row{"a file", "/etc/passwd", O_RDONLY, false},
                         Row{"nothing that is there", "/nowhere", O_RDWR, false}}) {
    SCOPED_TRACE(row.name);
    fs::remove_all(root_ / "proc/4242/fd");
    OpenFile(0, "/dev/zero", O_RDWR);
    OpenFile(17, row.file, row.flags);
    const Answer<Right> right = RightOf();
    ASSERT_EQ(right.has_value(), row.has_right);
    if (right) {
      EXPECT_EQ(*right, Right::kOpenDevice);
    }
  }
}

// The descriptor may change between the look at /proc and the duplicate. The duplicate counts.
TEST_F(CallerTest, AReplacedDescriptorGrantsNoRight) {
  OpenFile(17, "/dev/null", O_RDWR);
  host_.duplicate = [](pid_t, int) { return FileDescriptor(::open("/dev/zero", O_RDWR)); };
  EXPECT_FALSE(RightOf());
  host_.duplicate = [](pid_t, int) { return FileDescriptor(); };
  EXPECT_FALSE(RightOf()) << "an old kernel, or a capability that is lacking";
}

TEST_F(CallerTest, ARefusalNamesTheRemedy) {
  const Answer<Right> real = RightOf({}, {"GPU-a", NvidiaDevice(3)});
  ASSERT_FALSE(real);
  EXPECT_EQ(real.error().code, Refusal::kNotAllowed);
  EXPECT_THAT(real.error().message, HasSubstr("user 1000 may not lease GPU-a"));
  EXPECT_THAT(real.error().message, HasSubstr("character device 195:3"));
  EXPECT_THAT(real.error().message, HasSubstr("have root grant it"));
  EXPECT_THAT(RightOf({}, {"GPU-v", std::nullopt}).error().message,
              HasSubstr("have root grant it"));
}

// These tests ask the real kernel about this process.
TEST(ThisHost, IdentifiesThisProcess) {
  const Host host = ThisHost();
  const Answer<Caller> self = Identify(host, {::getpid(), ::geteuid(), ::getegid()});
  ASSERT_TRUE(self) << self.error().message;
  EXPECT_GT(self->process.started, 0U);
  EXPECT_TRUE(LookAgain(host, *self));
}

TEST(ThisHost, JudgesDescriptorsByADuplicate) {
  const Host host = ThisHost();
  const FileDescriptor open_file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const FileDescriptor duplicate = host.duplicate(::getpid(), open_file.get());
  if (!duplicate) GTEST_SKIP() << "no pidfd_getfd on this system";
  Answer<Caller> self = Identify(host, {::getpid(), ::geteuid(), ::getegid()});
  ASSERT_TRUE(self);
  self->is_administrator = false;
  self->cgroups.clear();
  const Answer<Right> right = RightTo(host, *self, kGpu, {});
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_EQ(*right, Right::kOpenDevice);
  // /dev/full is 1:7. A descriptor that was opened with O_PATH is not open.
  const FileDescriptor unchecked(::open("/dev/full", O_PATH | O_CLOEXEC));
  EXPECT_FALSE(RightTo(host, *self, {"GPU-b", makedev(1, 7)}, {}));
}

TEST(IsWithinCgroup, ComparesWholeNames) {
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

TEST(NamesDevice, RequiresTheNamedDriverWithReadAndWrite) {
  const dev_t gpu3 = *NvidiaDevice(3);
  for (const char* line : {"c 195:3 rw", "c 195:3 rwm", "c 195:* rwm"}) {
    EXPECT_TRUE(NamesDevice(line, gpu3)) << line;
  }
  for (const char* line : {"c 195:3 r", "c 195:3 wm", "c 195:3", "c 195:30 rw", "c 195:2 rw",
                           "c 19:3 rw", "b 195:3 rw", "a *:* rwm", "c *:* rwm", "c *:3 rw",
                           "c 195 rw", "c 195: rw", "c 195:3x rw", "", "c 195:3 rw extra"}) {
    EXPECT_FALSE(NamesDevice(line, gpu3)) << line;
  }
}

TEST(NvidiaDevice, IsCharacterDevice195) {
  EXPECT_EQ(NvidiaDevice(7), makedev(195, 7));
  EXPECT_EQ(NvidiaDevice(std::nullopt), std::nullopt);
  EXPECT_EQ(NvidiaDevice(-1), std::nullopt);
}

TEST(StartTimeIn, IsFieldTwentyTwoForAnyProcessName) {
  const std::string rest = " S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 3521262 23 24\n";
  for (const char* name :
       {"(train)", "(a b c)", "(:-) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18)", "((()", "())",
        "(line\nend)", "()"}) {
    EXPECT_EQ(StartTimeIn("42 " + std::string(name) + rest), 3521262U) << name;
  }
  for (const char* text : {"", "42 (train", "42 (train) S 4 5", "no parenthesis",
                           "42 (t) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 x 23"}) {
    EXPECT_EQ(StartTimeIn(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace perseus::agent
