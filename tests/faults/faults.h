// The faults of the campaign. Each function is one round: it lets clients work, does the damage at
// a random moment, and checks what is particular to it. What must hold after every fault
// (Node::Settle) the campaign checks after the function has returned.
#pragma once

#include <memory>
#include <optional>

#include "perseus/base/random.h"
#include "tests/faults/clients.h"
#include "tests/faults/node.h"

namespace perseus::faults {

struct Round {
  Node& node;
  SplitMix64& random;
  std::shared_ptr<Board> board;
  // To be called where the fault strikes: whether a clock of ours was set then is counted, since a
  // campaign that only ever strikes at rest shows nothing.
  bool was_changed = false;
  void Strikes() { was_changed = was_changed || node.IsChanged(); }

  ClientPlan Plan(double heartbeat_s = 30) const {
    return {node.socket(), node.uuids(), random(), board, heartbeat_s};
  }
  // Up to so many microseconds.
  void NapUpTo(std::int64_t microseconds) const {
    NapMicroseconds(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(microseconds)));
  }
  // A client of Hold(), which has got its lease and a clock.
  Process StartHolder(double heartbeat_s = 30, std::optional<int> clock_mhz = {}) const;
};

struct Fault {
  const char* name;
  const char* what;  // In a line.
  void (*run)(Round&);
  int one_in = 1;  // This many of the campaign's rounds; 1: each.
  int gpus = 4;
  AgentEnvironment environment = {};
  bool is_long = false;  // Left out where it would be less than one round.
  bool needs_root = false;
};

// The rounds, by what goes wrong.
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
void SendNonsense(Round& round);
void SayNothing(Round& round);
void SayNothingForAMinute(Round& round);
void CrowdIn(Round& round);
void TakeAllDescriptors(Round& round);

}  // namespace perseus::faults
