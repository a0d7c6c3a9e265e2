// The faults of the campaign. Each function is one round: it runs clients, injects the fault at a
// random moment, and checks the requirements of this fault. Then the campaign checks the
// requirements that apply after every fault (Node::Settle).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/random.h"
#include "perseus/base/units.h"
#include "tests/faults/clients.h"
#include "tests/faults/node.h"

namespace perseus::faults {

struct Round {
  Node& node;
  SplitMix64& random;
  std::shared_ptr<Board> board;
  // Whether a client's clock was set at the moment of the fault. A fault that only occurs while no
  // clock is set would show nothing.
  bool was_changed = false;
  void Strikes() { was_changed = was_changed || node.IsChanged(); }

  ClientPlan Plan(double heartbeat_s = 30) const {
    return {node.socket(), node.uuids(), random(), board, heartbeat_s};
  }
  // Sleeps for a random time up to this limit.
  void SleepUpTo(std::int64_t microseconds) const {
    SleepMicroseconds(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(microseconds)));
  }
  // In half of the rounds, waits until a client's clock is set. On a busy machine, clients spend
  // most of their time on other things. So faults at random moments would hardly ever meet a
  // changed GPU.
  void AwaitChangeInHalf() const;
  // Starts a client that runs Hold(), and returns after its first clock is set.
  Process StartHolder(double heartbeat_s = 30, std::optional<int> clock_mhz = {}) const;
  Process StartHolder(const ClientPlan& plan) const;
};

// Requires that the clients of Hold() keep their leases and set clocks for this time.
void ExpectWork(const Round& round, Nanoseconds duration);

// Waits for the condition. Returns false if the wait takes longer than any retry of the agent.
template <typename Condition>
bool Eventually(Condition condition) {
  const Nanoseconds begin = RealClock().Now();
  while (!condition()) {
    if (RealClock().Now() - begin > 30 * kSecond) return false;
    SleepMicroseconds(1000);
  }
  return true;
}

struct FaultNeeds {
  int gpus = 4;
  AgentEnvironment environment = {};
  bool root = false;
  bool whole_share = false;  // Skips the fault if its share is less than one round.
  // The reason why this system cannot run the fault. Empty: the system can.
  std::string (*obstacle)() = nullptr;
};
struct Fault {
  const char* name;
  const char* what;  // A description of one line.
  void (*run)(Round&);
  int one_in = 1;  // The fault gets one in this number of the campaign's rounds.
  FaultNeeds needs = {};
};

// One round of each fault.
void KillClients(Round& round);
void HangClient(Round& round);
void RecycleProcessNumber(Round& round);
void KillAgent(Round& round);
void TerminateAgent(Round& round);
void KillAgentWhileRestoring(Round& round);
void FillDisk(Round& round);
void FailRestores(Round& round);
void ReloadDriver(Round& round);
void ShiftWallClock(Round& round);
void SendMalformedMessages(Round& round);
void KeepSilence(Round& round);
void KeepSilenceForAMinute(Round& round);
void Contend(Round& round);
void TakeAllDescriptors(Round& round);
void ServeOtherUsers(Round& round);
void SendManyDescriptors(Round& round);
void PassHangingFiles(Round& round);

}  // namespace perseus::faults
