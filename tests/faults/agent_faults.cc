// Faults in which the agent ends.
#include <signal.h>

#include "tests/faults/faults.h"

namespace perseus::faults {
namespace {

std::vector<Process> StartClients(const Round& round) {
  std::vector<Process> clients;
  for (std::uint64_t count = 1 + round.random() % 3; count > 0; --count) {
    clients.push_back(Process::Start([plan = round.Plan()] { return Churn(plan); }));
  }
  return clients;
}

}  // namespace

// Kills the agent while clients work. The clients find the next agent by themselves.
void KillAgent(Round& round) {
  std::vector<Process> clients = StartClients(round);
  round.SleepUpTo(40'000);
  round.AwaitChangeInHalf();
  round.Strikes();
  round.node.KillAgent();
  // In some rounds, the clients die with the agent. In the other rounds, they connect to the next
  // agent.
  if (round.random() % 3 == 0) clients.clear();
  round.node.StartAgent();
  round.SleepUpTo(5000);
}

void TerminateAgent(Round& round) {
  const std::vector<Process> clients = StartClients(round);
  round.SleepUpTo(40'000);
  round.AwaitChangeInHalf();
  round.Strikes();
  round.node.StopAgent();
  round.node.RequireAllRestored();
  round.node.StartAgent();
}

// Kills the agent while it restores GPUs with a slow driver. Then kills the next agents while they
// restore the settings that the earlier agents left.
void KillAgentWhileRestoring(Round& round) {
  Process holder = round.StartHolder();
  for (int gpu = 0; gpu < round.node.fake().gpu_count(); ++gpu) {
    const int milliseconds = static_cast<int>(round.random() % 20);
    round.node.fake().Slow(gpu, fake_nvml::Function::kResetSmClock, milliseconds);
    round.node.fake().Slow(gpu, fake_nvml::Function::kSetSmClock, milliseconds);
  }
  holder.Kill();
  round.SleepUpTo(25'000);
  for (std::uint64_t deaths = 1 + round.random() % 4; deaths > 0; --deaths) {
    round.Strikes();
    round.node.KillAgent();
    round.node.LaunchAgent();
    round.SleepUpTo(120'000);
  }
  round.node.KillAgent();
  round.node.fake().Heal();
  round.node.StartAgent();
}

}  // namespace perseus::faults
