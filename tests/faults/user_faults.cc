// Ordinary users: users who may use a GPU, users who may not, and hostile users.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "perseus/base/file.h"
#include "tests/faults/faults.h"
#include "tests/faults/hanging_file.h"

namespace perseus::faults {
namespace {

constexpr int kManyDescriptors = 20'000;
// The agent limits what a user may request in a second. So each client has its own user.
constexpr uid_t kFirstUser = 100'000;
constexpr uid_t kUsers = 1'000'000;

enum class Right { kToUse, kNone };

ClientPlan PlanOfUser(const Round& round, Right right, const std::vector<int>& gpus) {
  ClientPlan plan = round.Plan();
  const std::vector<std::string> uuids = round.node.uuids();
  plan.gpus.clear();
  for (const int gpu : gpus) plan.gpus.push_back(uuids[static_cast<std::size_t>(gpu)]);
  plan.user = kFirstUser + static_cast<uid_t>(round.random() % kUsers);
  if (right == Right::kToUse) plan.groups = {kGpuGroup};
  return plan;
}

void RequireSuccess(Process& process, const std::string& what) {
  const int status = process.Wait();
  Require(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          fmt::format("{} (status {})", what, status));
}

void RequireRestored(const Round& round, int gpu) {
  Require(Eventually([&] { return round.node.Now(gpu) == round.node.Expected(gpu); }),
          "the GPU of a killed client was not restored");
}

// Starts a hostile process with `start`. Beside this process, a client keeps its lease and gets its
// clocks, a killed client's GPU is restored, and other users get leases.
void ServeOthersBeside(Round& round, const std::function<Process()>& start) {
  const Process holder = round.StartHolder(PlanOfUser(round, Right::kToUse, {0}));
  Process victim = round.StartHolder(PlanOfUser(round, Right::kToUse, {1}));
  const std::uint64_t before = round.board->messages;
  Process hostile = start();
  Require(Eventually([&] { return round.board->messages >= before + 10; }),
          "the hostile process does not run");
  round.SleepUpTo(200'000);
  round.Strikes();
  victim.Kill();
  RequireRestored(round, 1);
  Process other =
      Process::Start([plan = PlanOfUser(round, Right::kToUse, {1, 2})] { return WorkOnce(plan); });
  RequireSuccess(other, "another user does not get a GPU");
  const std::uint64_t landed = round.board->landed;
  Require(Eventually([&] { return round.board->landed >= landed + 10; }),
          "a correct client's clocks are no longer set");
  Require(round.board->lost == 0, "a correct client lost its lease");
  // Proves that the descriptors reach the agent on an old kernel.
  Require(!round.node.environment().has_old_kernel || Eventually([&] {
    const auto log = ReadFile(round.node.log());
    return log && log->find("sends descriptors") != std::string::npos;
  }),
          "the agent received no descriptors, so the test shows nothing");
  int status = 0;
  Require(!hostile.HasEnded(&status), "the hostile process has ended");
  if (round.random() % 3 != 0) return;
  round.node.StopAgent();
  round.node.RequireAllRestored();
  round.node.StartAgent();
}

// The number of child processes that send a file. None of these children may end, so their number
// is limited.
constexpr int kMostPassers = 24;

// Opens the file, locks it and sends it. Then closes the file, or exchanges it for another file.
void PassOnce(const ClientPlan& plan, const std::filesystem::path& file, bool flips) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) _exit(1);
  flock(descriptor, LOCK_EX | LOCK_NB);
  const auto client = Client::Connect(plan.socket);
  if (!client) _exit(1);
  SendDescriptors(client->socket(), std::vector<int>{descriptor, null, descriptor});
  ++plan.board->messages;
  for (int i = 0; flips && i < 100; ++i) {
    dup2(null, descriptor);  // If the server does not answer FUSE_FLUSH, this never returns.
    dup2(open(file.c_str(), O_RDWR | O_CLOEXEC), descriptor);
  }
  close(descriptor);
}

[[noreturn]] void PassFiles(const ClientPlan& plan, const std::filesystem::path& file) {
  signal(SIGCHLD, SIG_IGN);
  std::vector<Process> children;
  children.push_back(Process::Start([plan] { return Churn(plan); }));
  for (int passers = 0; passers < kMostPassers; ++passers) {
    children.push_back(Process::Start([&] {
      PassOnce(plan, file, passers % 2 == 0);
      return 0;
    }));
    SleepMicroseconds(5000);
  }
  for (;;) pause();
}

}  // namespace

void ServeOtherUsers(Round& round) {
  const Process holder = round.StartHolder(PlanOfUser(round, Right::kToUse, {0}));
  Process victim = round.StartHolder(PlanOfUser(round, Right::kToUse, {1}));
  std::vector<Process> served;
  for (int i = 0; i < 3; ++i) {
    served.push_back(Process::Start(
        [plan = PlanOfUser(round, Right::kToUse, {2, 3})] { return WorkOnce(plan); }));
  }
  std::vector<Process> refused;
  for (int i = 0; i < 2; ++i) {
    refused.push_back(Process::Start(
        [plan = PlanOfUser(round, Right::kNone, {0, 1, 2, 3})] { return BeRefused(plan, 5); }));
  }
  // The user of GPU 1 keeps its lease, but no user gets a new lease.
  Require(chmod(round.node.device_file(1).c_str(), 0600) == 0, "cannot take the right away");
  refused.push_back(Process::Start(
      [plan = PlanOfUser(round, Right::kToUse, {1})] { return BeRefused(plan, 5); }));
  for (Process& process : served) RequireSuccess(process, "a user with the right gets no GPU");
  for (Process& process : refused) {
    RequireSuccess(process, "a user without the right is not refused for this reason");
  }
  ExpectWork(round, kSecond / 20);
  round.Strikes();
  victim.Kill();
  RequireRestored(round, 1);
  Require(chmod(round.node.device_file(1).c_str(), 0660) == 0, "cannot give the right back");
  Process next =
      Process::Start([plan = PlanOfUser(round, Right::kToUse, {1})] { return WorkOnce(plan); });
  RequireSuccess(next, "a user with the right gets no GPU");
}

void SendManyDescriptors(Round& round) {
  const Right right = round.random() % 2 == 0 ? Right::kToUse : Right::kNone;
  ServeOthersBeside(round, [&] {
    return Process::Start([plan = PlanOfUser(round, right, {3})] {
      return StormDescriptors(plan, kManyDescriptors);
    });
  });
}

void PassHangingFiles(Round& round) {
  const HangingFileSystem system{
      .directory = round.node.directory() / "fuse",
      .device = round.node.directory() / "fuse-device",
      .unanswered = round.random() % 2 == 0 ? Unanswered::kFlush : Unanswered::kRelease};
  std::filesystem::create_directories(system.directory);
  if (!std::filesystem::exists(system.device)) MakeFuseDevice(system.device);
  ServeOthersBeside(round, [&] {
    ClientPlan plan = PlanOfUser(round, Right::kToUse, {3});
    return Process::Start([&system, plan]() mutable {
      BecomeUser(*plan.user, plan.groups);
      plan.user.reset();
      return ServeHangingFile(system, [&plan](const auto& file) { PassFiles(plan, file); });
    });
  });
}

}  // namespace perseus::faults
