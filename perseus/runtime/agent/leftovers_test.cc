#include "perseus/runtime/agent/leftovers.h"

#include <signal.h>
#include <sys/prctl.h>

#include <fstream>

#include "perseus/runtime/agent/agent_fixture.h"
#include "perseus/runtime/agent/agent_lock.h"
#include "perseus/runtime/agent/saved_state_file.h"

namespace perseus::agent {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{100};

class UnresponsiveAgentTest : public AgentTest {
 protected:
  Result<void> EndIt() { return EndUnresponsiveAgent(state(), socket(), kAnswerTime, log_); }
};

TEST_F(UnresponsiveAgentTest, WithoutAnAgentThereIsNothingToEnd) {
  const auto ended = EndIt();
  EXPECT_TRUE(ended) << ended.error().message;
}

TEST_F(UnresponsiveAgentTest, AnAgentThatAnswersIsNotEnded) {
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Start();
    while (true) ::pause();
  }
  ASSERT_TRUE(Eventually([&] { return HolderOf(LockPathOf(state())).has_value(); }));
  ASSERT_TRUE(Eventually([&] { return protocol::Connect(socket()).has_value(); }));
  const auto refused =
      EndUnresponsiveAgent(state(), socket(), std::chrono::milliseconds(10'000), log_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInput);
  EXPECT_EQ(::kill(agent, SIGKILL), 0) << "it still runs";
  ::waitpid(agent, nullptr, 0);
}

// The parent of the killed process waits for it only later, so the process cannot end: as with a
// driver call that hangs.
TEST_F(UnresponsiveAgentTest, AStoppedAgentIsKilledAndLosesItsState) {
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto lock = LockSavedState(state());
    while (true) ::pause();
  }
  ASSERT_TRUE(Eventually([&] { return HolderOf(LockPathOf(state())).has_value(); }));
  ::kill(agent, SIGSTOP);
  int status = 0;
  ::waitpid(agent, &status, WUNTRACED);
  EXPECT_FALSE(LockSavedState(state()));
  const auto ended = EndIt();
  EXPECT_TRUE(ended) << ended.error().message;
  EXPECT_TRUE(LockSavedState(state()));
  ::waitpid(agent, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// As after a start in another PID namespace: here the number belongs to another process.
TEST_F(UnresponsiveAgentTest, AProcessThatIsNotTheAgentIsNotKilled) {
  const auto lock = LockSavedState(state());
  ASSERT_TRUE(lock);
  const pid_t bystander = ::fork();
  if (bystander == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) ::pause();
  }
  std::ofstream(LockPathOf(state())) << bystander << " 1\n";
  const auto refused = EndIt();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(::waitpid(bystander, nullptr, WNOHANG), 0) << "it still runs";
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
}

}  // namespace
}  // namespace perseus::agent
