#include "perseus/runtime/agent/agent.h"

#include <sys/resource.h>

#include <fstream>

#include "perseus/runtime/agent/doctor.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/results.h"

namespace perseus::agent {
namespace {

using protocol::Refusal;
using ::testing::HasSubstr;

class AgentRestoreTest : public AgentTest {
 protected:
  // Expects that a lease sets the SM clock of GPU-a, and that the agent restores `before` at the
  // end of the lease.
  void ExpectLeaseRestores(const device::Setting& before) {
    {
      Client client(socket());
      client.Acquire({"GPU-a"});
      SetClock(client, a_, 900);
    }
    EXPECT_TRUE(Eventually([&] { return a_.setting(device::Control::kSmClock) == before; }));
  }
};

TEST_F(AgentTest, LeasesGpusSetsTheirClocksAndRestoresThem) {
  Start();
  {
    Client client(socket());
    const std::string lease = client.Acquire({"GPU-b", "GPU-a"});
    client.publisher().Publish(0, 1200);  // Channels are in the order of the request.
    client.publisher().Publish(1, 1000);
    EXPECT_TRUE(Eventually([&] {
      return b_.setting(device::Control::kSmClock) == device::Setting{1200, 1200} &&
             a_.setting(device::Control::kSmClock) == device::Setting{1000, 1000};
    }));
    EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").setting == "1000 MHz"; }));
    const protocol::GpuStatus status = client.StatusOf("GPU-a");
    EXPECT_EQ(status.lease, lease);
    EXPECT_EQ(status.job, "test");
    EXPECT_EQ(status.pid, getpid());
    EXPECT_EQ(status.before, "the driver's default");
    EXPECT_TRUE(
        std::holds_alternative<protocol::Done>(client.Ask(protocol::DeclareSlowdown{lease, 1.05})));
    EXPECT_EQ(client.StatusOf("GPU-a").slowdown, 1.05);
    EXPECT_TRUE(std::holds_alternative<protocol::Done>(client.Ask(protocol::Release{lease})));
    EXPECT_TRUE(Eventually([&] { return IsAllBack(); }));
    EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").lease.empty(); }));
  }
}

TEST_F(AgentTest, LogsOnceThatAnEnergyCounterFails) {
  Start();
  const std::string line = "GPU-a: its energy counter falls: energy is integrated from power";
  a_.SetCounter(device::CounterState::kUsed, 1);
  EXPECT_TRUE(Eventually([&] { return CountLogged("GPU-a: its energy counter fell (") == 1; }));
  a_.SetCounter(device::CounterState::kFalls, 2);
  EXPECT_TRUE(Eventually([&] { return CountLogged(line) == 1; }));
  b_.SetCounter(device::CounterState::kFalls, 1);
  EXPECT_TRUE(Eventually([&] { return CountLogged("GPU-b: its energy counter falls") == 1; }));
  EXPECT_EQ(CountLogged(line), 1);
}

// As after systemctl daemon-reload on the host of a container.
TEST_F(AgentTest, LogsOneLineIfGpusCannotBeRead) {
  Start();
  for (FakeGpu* gpu : {&a_, &b_}) gpu->Break(device::DeviceErrorKind::kFailed, "NVML error 999");
  EXPECT_TRUE(
      Eventually([&] { return CountLogged("2 of 2 GPUs cannot be read: NVML error 999") == 1; }));
  for (FakeGpu* gpu : {&a_, &b_}) gpu->Repair();
  EXPECT_TRUE(Eventually([&] { return CountLogged("all GPUs can be read again") == 1; }));
  EXPECT_EQ(CountLogged("cannot be read"), 1);
}

TEST_F(AgentTest, EachLeasedGpuHasTheSameShareOfTheLimitOnChanges) {
  StartWith([&](AgentOptions& options) { options.gpus.most_changes_per_s = 10; });
  Client first(socket());
  EXPECT_EQ(first.StatusOf("GPU-a").most_changes_per_s, 0);
  first.Acquire({"GPU-a"});
  EXPECT_EQ(first.StatusOf("GPU-a").most_changes_per_s, 10) << "alone on the node";
  {
    Client second(socket());
    second.Acquire({"GPU-b"});
    EXPECT_EQ(first.StatusOf("GPU-a").most_changes_per_s, 5);
    EXPECT_EQ(first.StatusOf("GPU-b").most_changes_per_s, 5);
  }
  EXPECT_TRUE(Eventually([&] { return first.StatusOf("GPU-a").most_changes_per_s == 10; }));
  EXPECT_EQ(first.StatusOf("GPU-b").most_changes_per_s, 0);
}

TEST_F(AgentTest, ALeaseOfTwoGpusHasTwoShares) {
  StartWith([&](AgentOptions& options) { options.gpus.most_changes_per_s = 10; });
  Client client(socket());
  client.Acquire({"GPU-b", "GPU-a"});
  EXPECT_EQ(client.StatusOf("GPU-a").most_changes_per_s, 5);
  EXPECT_EQ(client.StatusOf("GPU-b").most_changes_per_s, 5);
}

TEST_F(AgentTest, WithoutALimitNoLeaseHasAShare) {
  Start();
  Client client(socket());
  client.Acquire({"GPU-a"});
  EXPECT_EQ(client.StatusOf("GPU-a").most_changes_per_s, 0);
}

// The limit is one change in a thousand seconds.
TEST_F(AgentTest, WarnsOnceForEachLeaseThatIsOverTheLimitOnChanges) {
  StartWith([&](AgentOptions& options) { options.gpus.most_changes_per_s = 0.001; });
  const auto warnings = [&] {
    int count = 0;
    const std::string text = Logged();
    for (std::size_t at = 0; (at = text.find("more often than the limit", at)) != text.npos; ++at) {
      ++count;
    }
    return count;
  };
  for (int lease = 1; lease <= 2; ++lease) {
    {
      Client client(socket());
      client.Acquire({"GPU-a", "GPU-b"});
      for (int gpu = 0; gpu < 2; ++gpu) {
        client.publisher().Publish(gpu, 1000);
        EXPECT_TRUE(Eventually([&] {
          return client.publisher().answer(gpu).sequence == 1 ||
                 client.publisher().postponed(gpu) > 0;
        }));
        client.publisher().Publish(gpu, 900);
        EXPECT_TRUE(Eventually([&] { return client.publisher().postponed(gpu) > 0; }));
      }
      EXPECT_TRUE(Eventually([&] { return warnings() == lease; }));
    }
    EXPECT_TRUE(Eventually([&] { return IsAllBack(); }));
  }
  Stop();
  EXPECT_EQ(warnings(), 2) << Logged();
  EXPECT_THAT(Logged(), HasSubstr("which is 0.0005 changes per second here"));
  EXPECT_THAT(Logged(), HasSubstr("(plan with perseus plan --facts or --max-switches"));
}

TEST_F(AgentTest, EndsByItselfOnlyWithoutClients) {
  const auto clock = std::make_shared<FakeClock>();
  AgentOptions options = Options();
  options.exit_when_idle = std::chrono::milliseconds(500);
  options.clock = clock;
  Start(std::move(options));
  {
    Client client(socket());
    client.Acquire({"GPU-a"});
    client.publisher().Publish(0, 1000);
    // This is three times the time for which the agent waits for a client.
    clock->Advance(1500 * kMillisecond);
    EXPECT_EQ(client.StatusOf("GPU-a").job, "test");
  }
  // The agent first has to notice that the client is gone.
  const std::jthread passing([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      clock->Advance(100 * kMillisecond);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  thread_.join();  // The agent ends by itself.
  EXPECT_TRUE(result_);
  EXPECT_TRUE(IsAllBack());
  agent_.reset();
}

TEST_F(AgentTest, TheSecondOwnerIsRefusedWithTheNameOfTheFirst) {
  Start();
  Client first(socket());
  first.Acquire({"GPU-a"});
  Client second(socket());
  EXPECT_THAT(second.Acquire({"GPU-b", "GPU-a"}), HasSubstr("GPU-a is held by job \"test\""));
  // A request gets all of its GPUs or none.
  EXPECT_EQ(second.StatusOf("GPU-b").lease, "");
  EXPECT_THAT(second.Acquire({"GPU-c"}), HasSubstr("no GPU GPU-c"));
}

TEST_F(AgentRestoreTest, TheSettingsOfAnAdministrator) {
  a_.Set(device::Control::kSmClock, device::Setting{1000, 1300});
  Start();
  ExpectLeaseRestores(device::Setting{1000, 1300});
}

TEST_F(AgentRestoreTest, ALockThatTheDriverCannotReportIsNotOverwrittenUnlessDeclared) {
  a_.HideSmClock("the SM clock stands at 1000 of 1410 MHz");
  a_.Set(device::Control::kSmClock, device::Setting{1000, 1000});
  Start();
  {
    Client client(socket());
    EXPECT_THAT(client.Acquire({"GPU-a"}), HasSubstr("--rest GPU-a="));
    EXPECT_TRUE(a_.history().empty());
  }
  Stop();
  AgentOptions options = Options();
  options.gpus.resting = {{"GPU-a", device::Control::kSmClock, device::Setting{1000, 1000}}};
  Start(std::move(options));
  ExpectLeaseRestores(device::Setting{1000, 1000});
}

TEST_F(AgentTest, RestingClocksThatCannotBeAreAnErrorAndNotSaved) {
  const auto start_with = [&](const std::string& uuid, std::optional<device::Setting> setting) {
    AgentOptions options = Options();
    options.gpus.resting = {{uuid, device::Control::kSmClock, setting}};
    return Agent::Start(std::move(options), log_);
  };
  const auto expect_refused = [&](const std::string& uuid, device::Setting setting,
                                  const std::string& why) {
    EXPECT_THAT(start_with(uuid, setting), FailsAs(ErrorKind::kInput, HasSubstr(why))) << uuid;
    EXPECT_FALSE(std::filesystem::exists(state()));
  };
  expect_refused("GPU-none", {1000, 1000}, "this node has no GPU GPU-none");
  expect_refused("GPU-a", {901, 1410},
                 "no SM clock of 901 MHz (the nearest: 900 MHz and 1000 MHz)");
  expect_refused("GPU-a", {900, 1500}, "no SM clock of 1500 MHz (the nearest: 1410 MHz)");
  EXPECT_TRUE(start_with("GPU-none", std::nullopt));
}

// The declaration stays in the state until it is removed, also while the GPU is missing.
TEST_F(AgentTest, RestingClocksAreSavedUntilTheyAreRemoved) {
  const auto resting_after = [&](std::vector<GpuManager::Setup::Resting> resting) {
    AgentOptions options = Options();
    options.gpus.resting = std::move(resting);
    options.gpus.devices.devices.erase(options.gpus.devices.devices.begin());
    const auto agent = Agent::Start(std::move(options), log_);
    EXPECT_TRUE(agent) << agent.error().Message();
    return ParseSavedState(*ReadFile(state()), "state")->resting.contains("GPU-a");
  };
  AgentOptions options = Options();
  options.gpus.resting = {{"GPU-a", device::Control::kSmClock, device::Setting{1000, 1000}}};
  ASSERT_TRUE(Agent::Start(std::move(options), log_));
  EXPECT_TRUE(resting_after({}));
  EXPECT_THAT(Logged(), HasSubstr("--rest GPU-a=default"));
  EXPECT_TRUE(resting_after({{"GPU-a", device::Control::kSmClock, device::Setting{900, 1000}}}));
  EXPECT_FALSE(resting_after({{"GPU-a", device::Control::kSmClock, std::nullopt}}));
}

TEST_F(AgentTest, SilenceEndsALease) {
  Start();
  Client client(socket());
  client.Acquire({"GPU-a"}, 1);
  client.publisher().Publish(0, 1200);
  // The client sends nothing more, but the connection stays open.
  EXPECT_TRUE(Eventually([&] {
    return !client.StatusOf("GPU-a").is_restoring && client.StatusOf("GPU-a").lease.empty();
  }));
  EXPECT_TRUE(IsAllBack());
}

// A clock of virtual GPUs that moves only when the test moves it.
class HeldClock final : public Clock {
 public:
  Nanoseconds Now() override { return now_.load(); }
  Nanoseconds SinceEpoch() override { return now_.load(); }
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds /*until*/) override {
    real_.WaitWhile(word, value, MonotonicNow() + kMillisecond);
  }
  int Poll(std::span<pollfd> descriptors, Nanoseconds /*until*/) override {
    return real_.Poll(descriptors, MonotonicNow() + kMillisecond);
  }
  void Advance(Nanoseconds duration) { now_ += duration; }

 private:
  RealClock real_;
  std::atomic<Nanoseconds> now_ = kSecond;
};

// On a busy machine, virtual time is slower than real time. The heartbeats of a client use virtual
// time, so they are slower, too.
TEST_F(AgentTest, SilenceIsMeasuredByTheClockOfTheGpus) {
  const auto clock = std::make_shared<HeldClock>();
  StartWith([&](AgentOptions& options) { options.gpus.devices.clock = clock; });
  Client client(socket());
  const std::string lease = client.Acquire({"GPU-a"}, 1);
  // In this real time, the agent checks heartbeats several times.
  std::this_thread::sleep_for(std::chrono::nanoseconds(3 * LeaseTable::kLongestGap));
  EXPECT_EQ(client.StatusOf("GPU-a").lease, lease);
  EXPECT_TRUE(Eventually([&] {
    clock->Advance(kSecond / 10);
    return client.StatusOf("GPU-a").lease.empty();
  }));
}

TEST_F(AgentTest, StoppingRestoresAllGpus) {
  Start();
  Client client(socket());
  client.Acquire({"GPU-a", "GPU-b"});
  SetClock(client, a_, 1200);
  Stop();
  EXPECT_TRUE(result_);
  EXPECT_TRUE(IsAllBack());
  // At this time, no GPU is leased, and the connection has ended.
  EXPECT_TRUE(client.HasEnded());
}

TEST_F(AgentTest, AGpuThatIsNotRestoredInTimeIsAnErrorAndLeftToTheNextAgent) {
  StartWith([&](AgentOptions& options) { options.timeout = std::chrono::milliseconds(50); });
  Client client(socket());
  client.Acquire({"GPU-a"});
  SetClock(client, a_, 1200);
  a_.Break(device::DeviceErrorKind::kGone, "the driver is gone");
  Stop();
  EXPECT_THAT(result_, FailsWith(HasSubstr("not restored")));
  EXPECT_EQ(a_.setting(device::Control::kSmClock), (device::Setting{1200, 1200}));
  a_.Repair();
  Start();
  EXPECT_TRUE(Eventually([&] { return IsAllBack(); }));
}

TEST_F(AgentTest, AGpuIsNotLeasedBeforeItIsRestored) {
  Start();
  {
    Client client(socket());
    client.Acquire({"GPU-a"});
    SetClock(client, a_, 1200);
    a_.Break(device::DeviceErrorKind::kGone, "the driver is gone");
  }
  Client client(socket());
  EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").is_restoring; }));
  EXPECT_THAT(client.Acquire({"GPU-a"}), HasSubstr("GPU-a"));
  EXPECT_TRUE(Eventually(
      [&] { return client.StatusOf("GPU-a").trouble.find("gone") != std::string::npos; }));
  a_.Repair();
  EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").lease.empty(); }));
  EXPECT_TRUE(IsAllBack());
}

TEST_F(AgentTest, AGpuIsNotLeasedIfTheStateCannotBeSaved) {
  AgentOptions options = Options();
  auto is_full = std::make_shared<std::atomic<bool>>(false);
  options.gpus.write_state = [is_full](const auto& path, std::string_view text) -> Result<void> {
    if (*is_full) return FailAs(ErrorKind::kSystem, "no space left on device");
    return WriteFileAtomically(path, text);
  };
  Start(std::move(options));
  Client client(socket());
  *is_full = true;
  EXPECT_THAT(client.Acquire({"GPU-a"}), HasSubstr("no space left"));
  EXPECT_TRUE(a_.history().empty());
  *is_full = false;
  // When the disk has space again, the GPU becomes available.
  EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").lease.empty(); }));
  client.Acquire({"GPU-a"});
  SetClock(client, a_, 1200);
  *is_full = true;
  client.Ask(protocol::ReleaseGpu{"GPU-a"});
  // A full disk must not leave a clock locked.
  EXPECT_TRUE(Eventually([&] { return !a_.setting(device::Control::kSmClock); }));
  *is_full = false;
  EXPECT_TRUE(Eventually([&] { return IsAllBack(); }));
}

// Tests both cases: before the state is written for the first time, and afterwards.
TEST_F(AgentTest, ALeaseThatWasNotSavedChangesNothing) {
  AgentOptions options = Options();
  auto is_full = std::make_shared<std::atomic<bool>>(true);
  options.gpus.write_state = [is_full](const auto& path, std::string_view text) -> Result<void> {
    if (*is_full) return FailAs(ErrorKind::kSystem, "no space left on device");
    return WriteFileAtomically(path, text);
  };
  Start(std::move(options));
  Client client(socket());
  for (int times = 0; times < 2; ++times) {
    *is_full = true;
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(client.Acquire({"GPU-a", "GPU-b"}), HasSubstr("no space left"));
      for (const char* gpu : {"GPU-a", "GPU-b"}) {
        EXPECT_EQ(client.StatusOf(gpu).lease, "");
        EXPECT_FALSE(client.StatusOf(gpu).is_restoring);
      }
    }
    *is_full = false;
    const std::string lease = client.Acquire({"GPU-a"});
    client.Ask(protocol::Release{lease});
    EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").lease.empty(); }));
  }
  Stop();
  // The log has one line for each time at which the disk was full.
  const std::string log = Logged();
  const std::size_t first = log.find("no space left");
  const std::size_t second = log.find("no space left", first + 1);
  EXPECT_NE(second, std::string::npos) << log;
  EXPECT_EQ(log.find("no space left", second + 1), std::string::npos) << log;
}

// Simulates that the new file is in place, and only its directory could not be flushed.
TEST_F(AgentTest, AGpuIsNotLeasedWhileTheDiskMayHaveALeaseOfIt) {
  AgentOptions options = Options();
  auto is_unsure = std::make_shared<std::atomic<bool>>(true);
  options.gpus.write_state = [is_unsure](const auto& path, std::string_view text) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(path, text));
    if (*is_unsure) return FailAs(ErrorKind::kSystem, "cannot flush the directory");
    return {};
  };
  Start(std::move(options));
  Client client(socket());
  EXPECT_THAT(client.Acquire({"GPU-a"}), HasSubstr("cannot flush"));
  EXPECT_TRUE(client.StatusOf("GPU-a").is_restoring);
  const auto findings = ExamineNode({.root = "/", .socket = socket(), .state = state()});
  EXPECT_THAT(findings,
              ::testing::Contains(::testing::Field(
                  &Finding::detail, HasSubstr("0 of 2 GPUs are leased, 1 being restored"))));
  *is_unsure = false;
  EXPECT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").lease.empty(); }));
  EXPECT_TRUE(IsAllBack());
}

// The owner of the lease dies, and a child of the owner keeps the connection open.
TEST_F(AgentTest, AChildThatInheritsTheConnectionDoesNotInheritTheLease) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  LaterProcess parent([&] {
    Client client(socket());
    client.Acquire({"GPU-a"});
    client.publisher().Publish(0, 1200);
    if (fork() != 0) _exit(0);
    close(pipe_ends[1]);
    char byte = 0;
    // The child ends when the test ends.
    [[maybe_unused]] const auto end = read(pipe_ends[0], &byte, 1);
    return 0;
  });
  Start();
  close(pipe_ends[0]);
  EXPECT_EQ(parent.Run(), 0);
  EXPECT_TRUE(Eventually([&] { return IsAllBack(); }));
  close(pipe_ends[1]);
}

// The kernel's report that one process ended must not be taken for the end of another process.
TEST_F(AgentTest, ClientsThatEndDoNotEndOtherClients) {
  const auto come_and_go = [&] {
    const auto connection = protocol::Connect(socket());
    for (int request = 0; connection && request < 3; ++request) {
      if (!protocol::SendRequest(connection->get(), protocol::Format(protocol::List{}),
                                 kReplyTimeout))
        return 1;
    }
    return connection ? 0 : 1;
  };
  // All clients are children of a process without other threads.
  LaterProcess parent([&] {
    constexpr int kClients = 100;
    for (int i = 0; i < kClients; ++i) {
      if (fork() == 0) _exit(come_and_go());
    }
    int failed = 0;
    for (int i = 0; i < kClients; ++i) {
      int status = -1;
      wait(&status);
      failed += status == 0 ? 0 : 1;
    }
    return failed;
  });
  Start();
  EXPECT_EQ(parent.Run(), 0);
}

TEST_F(AgentTest, InvalidRequestsAreAnsweredUntilThereAreTooMany) {
  Start();
  Client client(socket());
  for (int i = 0; i < 31; ++i) {
    const protocol::Reply reply = client.AskInWords("{\"perseus\":1,\"nonsense\":{}}");
    EXPECT_EQ(std::get<protocol::Refused>(reply).code, Refusal::kMalformed);
  }
  // A valid request resets the count.
  EXPECT_TRUE(std::holds_alternative<protocol::Listing>(client.Ask(protocol::List{})));
  for (int i = 0; i < 32; ++i) client.AskInWords("nonsense");
  EXPECT_TRUE(client.HasEnded());
}

TEST_F(AgentTest, ASilentPeerWithoutALeaseIsDisconnected) {
  const auto clock = std::make_shared<FakeClock>();
  StartWith([&](AgentOptions& options) { options.clock = clock; });
  Client silent(socket());
  Client leasing(socket());
  leasing.Acquire({"GPU-a"});
  // The agent accepts connections in their order, so both clients are connected.
  clock->Advance(61 * kSecond);
  EXPECT_TRUE(silent.HasEnded());  // HasEnded() waits for the end.
  EXPECT_EQ(leasing.StatusOf("GPU-a").pid, getpid());
}

// A client that may connect can use up the agent's descriptors. So each step of accepting a
// connection may fail.
TEST_F(AgentTest, WithoutDescriptorsItRefusesAndContinues) {
  Start();
  Client client(socket());
  client.Acquire({"GPU-a"});
  // UBSan opens a pipe when it first checks an object of a type. So each type has to occur before.
  EXPECT_FALSE(std::generic_category().message(EMFILE).empty());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<FileDescriptor> peers;
  bool is_refused = false;
  for (int more = 2; more <= 4; ++more) {  // The peer has one of these descriptors.
    std::vector<FileDescriptor> room;
    room.reserve(static_cast<std::size_t>(more));
    for (int i = 0; i < more; ++i) room.emplace_back(dup(client.socket()));
    const rlimit tight{static_cast<rlim_t>(room.back().get()) + 1, before.rlim_max};
    room.clear();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    peers.push_back(*protocol::Connect(socket()));
    const auto answer = protocol::SendRequest(peers.back().get(),
                                              protocol::Format(protocol::List{}), kReplyTimeout);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    const auto reply =
        answer ? protocol::ParseReply(answer->text) : Result<protocol::Reply>(Fail(answer));
    is_refused = is_refused || !reply || std::holds_alternative<protocol::Refused>(*reply);
  }
  EXPECT_TRUE(is_refused);
  EXPECT_EQ(client.StatusOf("GPU-a").pid, getpid());
}

TEST_F(AgentTest, ASuccessorRemovesIncompleteFilesOfAKilledAgent) {
  std::filesystem::create_directories(state().parent_path());
  const std::filesystem::path half = state().native() + ".AbCd12";
  std::ofstream(half) << "{\"format\": \"perseus-ag";
  Start();
  EXPECT_FALSE(std::filesystem::exists(half));
}

TEST_F(AgentTest, OneAgentPerSocketAndState) {
  Start();
  EXPECT_THAT(Agent::Start(Options(), log_), FailsWith(HasSubstr(socket().string())));
  AgentOptions options = Options();
  options.socket = directory_ / "other.sock";
  EXPECT_THAT(Agent::Start(std::move(options), log_),
              FailsWith(HasSubstr("another agent that is running")));
}

TEST_F(AgentTest, OneAgentPerGpuEvenWithAnotherState) {
  AgentOptions first = Options();
  first.gpus.lock_directory = directory_ / "locks";
  Start(std::move(first));
  AgentOptions second = Options();
  second.socket = directory_ / "other.sock";
  second.gpus.state = directory_ / "other.json";
  second.gpus.lock_directory = directory_ / "locks";
  EXPECT_THAT(Agent::Start(std::move(second), log_),
              FailsWith(HasSubstr("GPU-a: another agent that is running")));
}

TEST_F(AgentTest, ADamagedStateStopsItBeforeItChangesAnything) {
  std::filesystem::create_directories(state().parent_path());
  std::ofstream(state()) << "{\"format\": \"perseus-agent-st";
  EXPECT_THAT(Agent::Start(Options(), log_), FailsWith(HasSubstr("agent.json")));
  EXPECT_TRUE(a_.history().empty());
}

TEST_F(AgentTest, TheLogNamesAGpuThatCannotBeRestored) {
  Start();
  Client client(socket());
  const std::string lease = client.Acquire({"GPU-a"});
  client.publisher().Publish(0, 1200);
  ASSERT_TRUE(Eventually([&] { return a_.setting(device::Control::kSmClock).has_value(); }));
  a_.Break(device::DeviceErrorKind::kFailed, "the driver is stuck");
  client.Ask(protocol::Release{lease});
  ASSERT_TRUE(
      Eventually([&] { return client.StatusOf("GPU-a").trouble == "the driver is stuck"; }));
  // The event loop writes the log when it looks for silent clients.
  Client silent(socket());
  silent.Acquire({"GPU-b"}, 1);
  ASSERT_TRUE(Eventually([&] { return client.StatusOf("GPU-b").lease.empty(); }));
  a_.Repair();
  Stop();
  const std::string line =
      "GPU-a is not restored yet, and the agent tries again: the driver is stuck";
  const std::size_t at = Logged().find(line);
  ASSERT_NE(at, std::string::npos) << Logged();
  EXPECT_EQ(Logged().find(line, at + 1), std::string::npos) << "once";
  EXPECT_TRUE(IsAllBack());
}

TEST_F(AgentTest, TheListAndTheLogNameTheLockOfAnotherProgram) {
  Start();
  Client client(socket());
  client.Acquire({"GPU-a"});
  client.publisher().Publish(0, 1200);
  ASSERT_TRUE(Eventually([&] { return client.StatusOf("GPU-a").slow_by == "plan"; }));
  EXPECT_EQ(client.StatusOf("GPU-a").overridden, "");
  a_.Set(device::Control::kSmClock, device::Setting{1000, 1000});
  ASSERT_TRUE(Eventually([&] { return !client.StatusOf("GPU-a").overridden.empty(); }));
  EXPECT_EQ(client.StatusOf("GPU-a").slow_by, "another program");
  EXPECT_EQ(client.StatusOf("GPU-b").overridden, "");
  // The event loop writes the log when it looks for silent clients.
  Client silent(socket());
  silent.Acquire({"GPU-b"}, 1);
  ASSERT_TRUE(Eventually([&] { return client.StatusOf("GPU-b").lease.empty(); }));
  Stop();
  EXPECT_THAT(Logged(), testing::HasSubstr("GPU-a: another program has locked the SM clock to "
                                           "1000 MHz"));
}

}  // namespace
}  // namespace perseus::agent
