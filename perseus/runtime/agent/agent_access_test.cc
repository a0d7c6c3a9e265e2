// Who may lease a GPU, with real users, groups and cgroups. Only root may run processes as another
// user, so these tests need root.
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "perseus/runtime/access/user_budget.h"
#include "perseus/runtime/agent/privileges.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/device_cgroup.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using protocol::Refusal;
using ::testing::HasSubstr;

constexpr uid_t kTrainingUser = 54'321;
constexpr gid_t kTrainingGroup = 54'322;
constexpr gid_t kGpuGroup = 54'323;

// The result of another user's process, as its exit status.
enum Outcome : int { kLeaseGranted = 10, kLeaseRefused = 11, kNoAnswer = 12 };

bool BecomeTrainingUser(std::vector<gid_t> groups) {
  return ::setgroups(groups.size(), groups.data()) == 0 &&
         ::setresgid(kTrainingGroup, kTrainingGroup, kTrainingGroup) == 0 &&
         ::setresuid(kTrainingUser, kTrainingUser, kTrainingUser) == 0;
}

int TryToLease(const std::filesystem::path& socket, const std::string& gpu) {
  const auto connected = protocol::Connect(socket);
  if (!connected) return kNoAnswer;
  const auto answer = protocol::SendRequest(
      connected->get(), protocol::Format(protocol::Acquire{{gpu}, "training", 30}), kReplyTimeout);
  if (!answer) return kNoAnswer;
  const auto reply = protocol::ParseReply(answer->text);
  if (!reply) return kNoAnswer;
  if (std::holds_alternative<protocol::Lease>(*reply)) return kLeaseGranted;
  const auto* refused = std::get_if<protocol::Refused>(&*reply);
  if (refused != nullptr && refused->code == Refusal::kNotAllowed) return kLeaseRefused;
  std::fprintf(stderr, "%s\n", refused != nullptr ? refused->message.c_str() : "another reply");
  return kNoAnswer;
}

class AgentAccessTest : public AgentTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may run as another user";
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  }

  // Creates a file that replaces a GPU's device. The kernel checks the permissions of both in the
  // same way.
  std::filesystem::path DeviceFile(const std::string& name, mode_t mode, gid_t group) {
    const std::filesystem::path path = directory_ / name;
    std::ofstream(path) << "";
    EXPECT_EQ(::chown(path.c_str(), 0, group), 0);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  // Returns a process of another user that tries to lease the GPU. If `cgroup` is given, the
  // process is in it.
  std::unique_ptr<LaterProcess> Trainer(const std::string& gpu, std::vector<gid_t> groups = {},
                                        const DeviceCgroup* cgroup = nullptr) {
    return std::make_unique<LaterProcess>([this, gpu, groups, cgroup] {
      if (cgroup != nullptr && !cgroup->Join()) return int{kNoAnswer};
      return BecomeTrainingUser(groups) ? TryToLease(socket(), gpu) : int{kNoAnswer};
    });
  }
};

// There is no grant, no CUDA context and no open file, so the permissions of the device decide.
TEST_F(AgentAccessTest, AnotherUserLeasesTheGpusThatItMayOpen) {
  a_.SetDeviceFile(DeviceFile("gpu0", 0660, kGpuGroup));
  b_.SetDeviceFile(DeviceFile("gpu1", 0660, 0));
  const auto stranger = Trainer("GPU-a");
  const auto member = Trainer("GPU-a", {kGpuGroup});
  const auto member_of_another = Trainer("GPU-b", {kGpuGroup});
  Start();
  EXPECT_EQ(stranger->Run(), kLeaseRefused);
  EXPECT_EQ(member->Run(), kLeaseGranted);
  EXPECT_EQ(member_of_another->Run(), kLeaseRefused);
}

TEST_F(AgentAccessTest, AGrantNeedsNoAccess) {
  a_.SetDeviceFile(DeviceFile("gpu0", 0600, 0));
  const auto before = Trainer("GPU-a");
  const auto after = Trainer("GPU-a");
  Start();
  EXPECT_EQ(before->Run(), kLeaseRefused);
  Client root(socket());
  EXPECT_TRUE(std::holds_alternative<protocol::Done>(
      root.Ask(protocol::Grant{{"GPU-a"}, kTrainingUser, std::nullopt})));
  EXPECT_EQ(after->Run(), kLeaseGranted);
}

class AgentCgroupTest : public AgentAccessTest,
                        public ::testing::WithParamInterface<DeviceCgroup::Version> {};

// /dev/null represents the GPU that the batch system gave to the job. /dev/zero represents another
// GPU.
TEST_P(AgentCgroupTest, AJobLeasesTheGpusOfItsCgroup) {
  if (IsSkipped()) return;
  const auto cgroup = DeviceCgroup::DenyingZero(GetParam());
  if (!cgroup) GTEST_SKIP() << "this system has no such cgroups, or lets nobody make one";
  a_.SetDeviceFile("/dev/null");
  b_.SetDeviceFile("/dev/zero");
  const auto own = Trainer("GPU-a", {}, cgroup.get());
  const auto other = Trainer("GPU-b", {}, cgroup.get());
  const auto unconfined = Trainer("GPU-b");
  Start();
  EXPECT_EQ(own->Run(), kLeaseGranted);
  EXPECT_EQ(other->Run(), kLeaseRefused);
  EXPECT_EQ(unconfined->Run(), kLeaseGranted) << "nobody confines it";
}

INSTANTIATE_TEST_SUITE_P(Versions, AgentCgroupTest,
                         ::testing::Values(DeviceCgroup::kVersion1, DeviceCgroup::kVersion2),
                         [](const auto& version) {
                           return version.param == DeviceCgroup::kVersion1 ? "V1" : "V2";
                         });

// The agent has the capabilities that the shipped systemd unit gives.
TEST_F(AgentAccessTest, FiveCapabilitiesSuffice) {
  a_.SetDeviceFile(DeviceFile("gpu0", 0666, 0));
  b_.SetDeviceFile(DeviceFile("gpu1", 0600, 0));
  const auto run_confined = [this] {
    const auto cgroup = DeviceCgroup::DenyingZero(DeviceCgroup::kVersion2);
    const auto allowed = Trainer("GPU-a", {}, cgroup.get());
    const auto refused = Trainer("GPU-b", {}, cgroup.get());
    int failure = KeepOnlyNeededCapabilities() ? 0 : 1;
    Start();
    if (allowed->Run() != kLeaseGranted) failure |= 2;
    if (refused->Run() != kLeaseRefused) failure |= 4;
    Stop();
    return failure | (HasFailure() ? 8 : 0);
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_confined());
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A host on which reading the cgroups of this process waits, because a user holds the kernel's lock
// of all cgroups. In this test, the file is a pipe whose writer does not end. On this host, this
// process is no administrator.
class SlowCgroups {
 public:
  explicit SlowCgroups(const fs::path& root) : root_(root) {
    const fs::path process = root / "proc" / std::to_string(::getpid());
    fs::create_directories(process / "ns");
    fs::create_directories(root / "proc/self/ns");
    fs::create_symlink(fs::path("/proc") / std::to_string(::getpid()) / "stat", process / "stat");
    std::ofstream(process / "status") << fmt::format(
        "Uid:\t{0}\t{0}\t{0}\t{0}\nGid:\t0\t0\t0\t0\nGroups:\t\nCapEff:\t0\n", ::geteuid());
    for (const fs::path& self : {process, root / "proc/self"}) {
      fs::create_symlink("user:[1]", self / "ns/user");
    }
    std::ofstream(root / "proc/self/cgroup") << kCgroups;
    int ends[2] = {};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
    EXPECT_EQ(::write(writer_.get(), kCgroups.data(), kCgroups.size()),
              static_cast<ssize_t>(kCgroups.size()));
    cgroups_ = process / "cgroup";
    fs::create_symlink(fmt::format("/proc/{}/fd/{}", ::getpid(), reader_.get()), cgroups_);
  }
  Host host() const { return {root_, /*agent_uid=*/12'345}; }
  // Returns when a thread has read the available text, and waits for more.
  void WaitForReader() {
    for (int left = 1; left > 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_EQ(::ioctl(reader_.get(), FIONREAD, &left), 0);
    }
  }
  void Release() {
    fs::remove(cgroups_);
    std::ofstream(cgroups_) << kCgroups;
    writer_ = FileDescriptor();
  }

 private:
  static constexpr std::string_view kCgroups = "0::/\n";
  fs::path root_, cgroups_;
  FileDescriptor reader_;
  FileDescriptor writer_;
};

TEST_F(AgentTest, AUserWhoseCgroupsTakeLongToReadHoldsUpNobody) {
  SlowCgroups slow(directory_ / "host");
  StartWith([&](AgentOptions& options) { options.gpus.host = slow.host(); });
  std::string refusal;
  std::thread waits([&] {
    Client client(socket());
    refusal = client.Acquire({"GPU-a"});
  });
  slow.WaitForReader();
  {
    Client other(socket());
    EXPECT_EQ(other.StatusOf("GPU-a").uuid, "GPU-a");
  }
  slow.Release();
  waits.join();
  EXPECT_THAT(refusal, HasSubstr("no device file"));
}

// The timeouts of a request that the agent has to answer, and of a request that it must not answer.
constexpr std::chrono::seconds kAnswered(30);
constexpr std::chrono::seconds kUnanswered(1);

// The number of lists of two GPUs for which a user's budget is enough.
constexpr int kPaidLists = static_cast<int>((UserBudget::kBurst - UserBudget::kConnection) /
                                            (UserBudget::kMessage + 2 * UserBudget::kListedGpu));
constexpr std::chrono::seconds TimeoutAfter(int answers) {
  return answers < kPaidLists ? kAnswered : kUnanswered;
}

// Sends requests until the agent does not answer any more. Returns whether the agent answered as
// many requests as the budget allows, and fewer than it would allow if lists cost nothing.
int Flood(const fs::path& socket) {
  const auto connected = protocol::Connect(socket);
  if (!connected) return kNoAnswer;
  const std::string list = protocol::Format(protocol::List{});
  int answers = 0;
  while (answers <= 2 * UserBudget::kBurst &&
         protocol::SendRequest(connected->get(), list, TimeoutAfter(answers))) {
    ++answers;
  }
  return answers >= kPaidLists && answers < UserBudget::kBurst ? 0 : 1;
}

// The clock of the agent stands still in these tests, so users receive no new units.
TEST_F(AgentAccessTest, AUserWhoFloodsTheAgentWaitsAndOthersDoNot) {
  LaterProcess flood([this] { return BecomeTrainingUser({}) ? Flood(socket()) : int{kNoAnswer}; });
  StartWith([&](AgentOptions& options) { options.clock = std::make_shared<FakeClock>(); });
  EXPECT_EQ(flood.Run(), 0);
  Client root(socket());
  EXPECT_EQ(root.StatusOf("GPU-a").uuid, "GPU-a");
}

// The more GPUs the agent has, the longer a list takes.
TEST_F(AgentAccessTest, ListsOfManyGpusCostMore) {
  LaterProcess lists([this] {
    if (!BecomeTrainingUser({})) return int{kNoAnswer};
    const auto connected = protocol::Connect(socket());
    if (!connected) return int{kNoAnswer};
    const std::string list = protocol::Format(protocol::List{});
    int listed = 0;
    while (listed <= UserBudget::kBurst) {
      const auto answer = protocol::SendRequest(connected->get(), list, TimeoutAfter(listed));
      // If the budget ends exactly after a list, the agent only stops reading.
      if (!answer || answer->text.find("lists GPUs too often") != std::string::npos) break;
      ++listed;
    }
    return listed == kPaidLists ? 0 : 1;
  });
  StartWith([&](AgentOptions& options) { options.clock = std::make_shared<FakeClock>(); });
  EXPECT_EQ(lists.Run(), 0);
}

// With newuidmap, a user's processes can run as thousands of other users.
TEST_F(AgentAccessTest, SubordinateUsersShareTheBudgetOfTheirOwner) {
  const fs::path root = directory_ / "host";
  fs::create_directories(root / "etc");
  fs::create_directory_symlink("/proc", root / "proc");
  std::ofstream(root / "etc/subuid") << fmt::format("ann:{}:10\n", kTrainingUser - 5);
  const auto run_as = [this](uid_t user, const std::function<int(const fs::path&)>& run) {
    return std::make_unique<LaterProcess>([this, user, run] {
      return ::setresuid(user, user, user) == 0 ? run(socket()) : int{kNoAnswer};
    });
  };
  const auto ask_once = [](std::chrono::seconds timeout) {
    return [timeout](const fs::path& socket) {
      const auto connected = protocol::Connect(socket);
      if (!connected) return int{kNoAnswer};
      const auto answer =
          protocol::SendRequest(connected->get(), protocol::Format(protocol::List{}), timeout);
      const auto reply = answer ? protocol::ParseReply(answer->text) : Fail("no answer");
      return reply && std::holds_alternative<protocol::Listing>(*reply) ? 0 : 1;
    };
  };
  const auto flood = run_as(kTrainingUser, Flood);
  const auto sibling = run_as(kTrainingUser + 1, ask_once(kUnanswered));
  const auto stranger = run_as(kTrainingUser + 5, ask_once(kAnswered));
  AgentOptions options = Options();
  options.clock = std::make_shared<FakeClock>();
  options.gpus.host.root = root;
  Start(std::move(options));
  EXPECT_EQ(flood->Run(), 0);
  EXPECT_EQ(sibling->Run(), 1);
  EXPECT_EQ(stranger->Run(), 0);
}

}  // namespace
}  // namespace perseus::agent
