// Peers that mean no good, and too many that do.
#include <sys/wait.h>

#include <string>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/units.h"
#include "tests/faults/faults.h"

namespace perseus::faults {
namespace {

void LetWork(const Round& round, Nanoseconds duration) {
  const Nanoseconds end = RealClock().Now() + duration;
  const std::uint64_t landed = round.board->landed;
  while (RealClock().Now() < end) NapMicroseconds(5000);
  Require(round.board->lost == 0, "a proper client lost its lease");
  Require(round.board->landed > landed, "a proper client's switches no longer land");
}

}  // namespace

void SendNonsense(Round& round) {
  const Process holder = round.StartHolder();
  std::vector<Process> peers;
  for (int i = 0; i < 4; ++i) {
    peers.push_back(Process::Start([plan = round.Plan()] { return Babble(plan, 2600); }));
  }
  round.Strikes();
  LetWork(round, kSecond);
  round.node.List();
}

void SayNothing(Round& round) {
  constexpr int kSilent = 100;
  const std::uint64_t before = round.board->messages + round.board->refused;
  const Process peer = Process::Start([plan = round.Plan()] { return BeSilent(plan, kSilent); });
  while (round.board->messages + round.board->refused < before + kSilent) NapMicroseconds(1000);
  const Process holder = round.StartHolder();
  round.Strikes();
  LetWork(round, kSecond / 20);
}

// They are sent away, and a client that holds a lease and only publishes is not.
void SayNothingForAMinute(Round& round) {
  const Process peer = Process::Start([plan = round.Plan()] { return BeSilent(plan, 100); });
  Process holder = round.StartHolder();
  round.Strikes();
  LetWork(round, 62 * kSecond);
  holder.Kill();
  round.node.Settle();  // The silent ones are still there, and their descriptors are not.
}

void CrowdIn(Round& round) {
  std::vector<Process> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Process::Start([plan = round.Plan()] { return WorkOnce(plan); }));
  }
  for (Process& client : clients) {
    round.Strikes();
    const int status = client.Wait();
    Require(WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "one of 200 clients got no clock set (" + std::to_string(status) + ")");
  }
}

// More connections than the agent may have files open.
void TakeAllDescriptors(Round& round) {
  const Process holder = round.StartHolder();
  std::vector<Process> peers;
  for (int i = 0; i < 4; ++i) {
    peers.push_back(Process::Start([plan = round.Plan()] { return BeSilent(plan, 100); }));
  }
  round.Strikes();
  LetWork(round, kSecond / 2);
}

}  // namespace perseus::faults
