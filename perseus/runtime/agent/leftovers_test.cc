#include "perseus/runtime/agent/leftovers.h"

#include <signal.h>
#include <sys/prctl.h>

#include <fstream>
#include <regex>
#include <utility>

#include "perseus/runtime/agent/agent_lock.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/results.h"

namespace perseus::agent {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{100};

class UnresponsiveAgentTest : public AgentTest {
 protected:
  auto Find() { return FindUnresponsiveAgent(state(), socket(), kAnswerTime); }

  // Forks a process that calls `then` and never ends by itself.
  template <typename Function>
  static pid_t Fork(Function then) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      [[maybe_unused]] const auto kept = then();
      while (true) ::pause();
    }
    return child;
  }
  // Forks an agent that has the state, listens on `where`, and never answers.
  pid_t ForkSilentAgent(const std::filesystem::path& where) {
    const pid_t agent = Fork([&] {
      auto listener = protocol::Listen(where, 0600);
      auto lock = LockSavedState(state());
      RecordSocket(*lock, where);
      return std::pair(std::move(listener), std::move(lock));
    });
    EXPECT_TRUE(Eventually([&] { return !SocketOfHolder(LockPathOf(state())).empty(); }));
    return agent;
  }
  static void ExpectRuns(pid_t process) {
    EXPECT_EQ(::waitpid(process, nullptr, WNOHANG), 0) << "it was killed";
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
};

TEST_F(UnresponsiveAgentTest, WithoutAnAgentThereIsNothingToEnd) { EXPECT_FALSE(ValueOf(Find())); }

// The test also names a socket that does not exist, as a caller without --socket does.
TEST_F(UnresponsiveAgentTest, AnAgentThatAnswersOnItsOwnSocketIsNotEnded) {
  const pid_t agent = Fork([&] {
    Start();
    return 0;
  });
  ASSERT_TRUE(Eventually([&] { return protocol::Connect(socket()).has_value(); }));
  ASSERT_TRUE(Eventually([&] { return !SocketOfHolder(LockPathOf(state())).empty(); }));
  for (const auto& given : {socket(), directory_ / "nowhere.sock"}) {
    EXPECT_THAT(FindUnresponsiveAgent(state(), given, std::chrono::milliseconds(10'000)),
                FailsAs(ErrorKind::kInput, ::testing::HasSubstr(socket().string())));
  }
  ExpectRuns(agent);
}

// Example of such a holder: an agent of an earlier version, or perseus qualify.
TEST_F(UnresponsiveAgentTest, AHolderOfUnknownSocketIsNotEnded) {
  const pid_t holder = Fork([&] { return LockSavedState(state()); });
  ASSERT_TRUE(Eventually([&] { return HolderOf(LockPathOf(state())).has_value(); }));
  EXPECT_THAT(Find(),
              FailsAs(ErrorKind::kSystem, ::testing::HasSubstr("give the `socket` of this agent")));
  ExpectRuns(holder);
}

// If another agent is silent on its socket, this says nothing about the holder.
TEST_F(UnresponsiveAgentTest, TheSocketOfAnotherProcessProvesNothing) {
  const auto other = protocol::Listen(socket(), 0600);
  ASSERT_TRUE(other);
  const pid_t holder = Fork([&] { return LockSavedState(state()); });
  ASSERT_TRUE(Eventually([&] { return HolderOf(LockPathOf(state())).has_value(); }));
  EXPECT_THAT(Find(), FailsWith(::testing::HasSubstr("the socket of another process")));
  ExpectRuns(holder);
}

// The parent of the killed process waits for it only later, so the process cannot end. A driver
// call that hangs has the same effect.
TEST_F(UnresponsiveAgentTest, AStoppedAgentIsKilledAndLosesItsState) {
  const pid_t agent = ForkSilentAgent(directory_ / "other.sock");
  ::kill(agent, SIGSTOP);
  int status = 0;
  ::waitpid(agent, &status, WUNTRACED);
  EXPECT_FALSE(LockSavedState(state()));
  const auto found = Find();
  ASSERT_TRUE(found && *found) << (found ? "not found" : found.error().Message());
  EXPECT_EQ((*found)->pid, agent);
  const auto ended = EndUnresponsiveAgent(state(), **found, log_);
  EXPECT_TRUE(ended) << ended.error().Message();
  EXPECT_TRUE(LockSavedState(state()));
  ::waitpid(agent, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// As after a start in another PID namespace: here the number belongs to another process.
TEST_F(UnresponsiveAgentTest, AProcessThatIsNotTheAgentIsNotKilled) {
  const auto lock = LockSavedState(state());
  ASSERT_TRUE(lock);
  const pid_t bystander = Fork([] { return 0; });
  std::ofstream(LockPathOf(state())) << bystander << " 1\n";
  EXPECT_THAT(Find(), FailsAs(ErrorKind::kSystem));
  ExpectRuns(bystander);
}

// The state that a killed agent leaves: GPU-a is locked, and the state records this.
class LeftoversTest : public AgentTest {
 protected:
  LeftoversTest() {
    SavedState left;
    left.boot_id = "11112222-boot";
    left.Take({.uuid = "GPU-a",
               .lease = "lease-1",
               .owner = {{4242, 1}, 1000, "llama"},
               .controls = {{device::Control::kSmClock, {{true, std::nullopt}, true}}}});
    text_ = FormatSavedState(left);
    std::filesystem::create_directories(state().parent_path());
    Leave(text_);
  }

  void Leave(const std::string& text) {
    a_.Set(device::Control::kSmClock, device::Setting{900, 900});
    static_cast<void>(Write(state(), text));
    ForgetLogged();
  }
  Result<int> GiveBack(GpuManager::Setup setup) {
    setup.write_state = Write;
    return GiveBackLeftovers(std::move(setup), std::chrono::seconds(60), log_);
  }
  // Writes without a flush, because the tests do this often. (Truncating a file may flush it, too.)
  static Result<void> Write(const std::filesystem::path& path, std::string_view text) {
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    return {};
  }
  bool Warns(const std::string& why) const {
    return Logged().find(
               "GPU-a: the SM clock, which lease lease-1 (\"llama\") changed in "
               "another boot, is not restored: " +
               why) != std::string::npos;
  }

  std::string text_;
};

TEST_F(LeftoversTest, NoChangedByteOfTheStateLeavesAGpuLockedSilently) {
  const std::string without_checksum = std::regex_replace(
      text_, std::regex(R"("version": 2,\s*"checksum": "\w{8}")"), R"("version": 1)");
  for (const std::string& text : {text_, without_checksum}) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      Leave(damaged);
      const auto restored = GiveBack(Options().gpus);
      if (restored) {
        EXPECT_TRUE(!a_.setting(device::Control::kSmClock) || Warns("it reads 900 MHz")) << damaged;
      } else {
        EXPECT_THAT(restored.error().Message(),
                    ::testing::AnyOf(::testing::HasSubstr(state().string()),
                                     ::testing::HasSubstr("not restored yet")))
            << damaged;
      }
    }
  }
}

TEST_F(LeftoversTest, AnotherBootForgetsNoLockSilently) {
  const auto forget = [&](bool is_present) {
    GpuManager::Setup setup = Options().gpus;
    setup.boot_id = "33334444-boot";
    if (!is_present) setup.devices.devices.erase(setup.devices.devices.begin());
    Leave(text_);
    EXPECT_TRUE(GiveBack(std::move(setup)));
    EXPECT_EQ(a_.setting(device::Control::kSmClock), (device::Setting{900, 900}));
  };
  forget(true);
  EXPECT_TRUE(
      Warns("it reads 900 MHz (if neither the boot nor another program has set it since, "
            "set it to the driver's default by hand"));
  forget(false);
  EXPECT_TRUE(Warns("it cannot be read"));
  a_.HideSmClock("the SM clock stands at 900 of 1410 MHz");
  forget(true);
  EXPECT_TRUE(Warns("the SM clock stands at 900 of 1410 MHz"));
  a_.HideSmClock("");
  forget(true);
  EXPECT_TRUE(Warns("the driver does not report it"));
}

TEST_F(LeftoversTest, ABootThatHasResetTheGpuIsNoReasonToWarn) {
  a_.Set(device::Control::kSmClock, std::nullopt);
  GpuManager::Setup setup = Options().gpus;
  setup.boot_id = "33334444-boot";
  EXPECT_TRUE(GiveBack(std::move(setup)));
  EXPECT_EQ(Logged(), "");
}

}  // namespace
}  // namespace perseus::agent
