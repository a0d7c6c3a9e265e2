// Faulty clients, and too many correct clients.
#include <sys/wait.h>

#include <string>
#include <vector>

#include "tests/faults/faults.h"

namespace perseus::faults {

void ExpectWork(const Round& round, Nanoseconds duration) {
  const Nanoseconds end = RealClock().Now() + duration;
  const std::uint64_t landed = round.board->landed;
  while (RealClock().Now() < end) SleepMicroseconds(5000);
  // On a loaded machine, the next clock may take longer than `duration`.
  Require(Eventually([&] { return round.board->landed > landed; }),
          "a correct client's clocks are no longer set");
  Require(round.board->lost == 0, "a correct client lost its lease");
}

void SendMalformedMessages(Round& round) {
  const Process holder = round.StartHolder();
  std::vector<Process> peers;
  for (int i = 0; i < 4; ++i) {
    peers.push_back(Process::Start([plan = round.Plan()] { return SendMalformed(plan, 2600); }));
  }
  round.Strikes();
  ExpectWork(round, kSecond);
  round.node.List();
}

void KeepSilence(Round& round) {
  constexpr int kSilent = 100;
  const std::uint64_t before = round.board->messages + round.board->refused;
  const Process peer = Process::Start([plan = round.Plan()] { return StaySilent(plan, kSilent); });
  while (round.board->messages + round.board->refused < before + kSilent) SleepMicroseconds(1000);
  const Process holder = round.StartHolder();
  round.Strikes();
  ExpectWork(round, kSecond / 20);
}

// The agent closes silent connections. It does not close the connection of a client that holds a
// lease and only publishes.
void KeepSilenceForAMinute(Round& round) {
  const Process peer = Process::Start([plan = round.Plan()] { return StaySilent(plan, 100); });
  Process holder = round.StartHolder();
  round.Strikes();
  ExpectWork(round, 62 * kSecond);
  holder.Kill();
  round.node.Settle();  // The silent peer still runs, but the agent has closed its connections.
}

void Contend(Round& round) {
  std::vector<Process> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Process::Start([plan = round.Plan()] { return WorkOnce(plan); }));
  }
  for (Process& client : clients) {
    round.Strikes();
    const int status = client.Wait();
    Require(WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "one of 200 clients failed to set a clock (" + std::to_string(status) + ")");
  }
}

// Opens more connections than the agent may have open files.
void TakeAllDescriptors(Round& round) {
  const Process holder = round.StartHolder();
  std::vector<Process> peers;
  for (int i = 0; i < 4; ++i) {
    peers.push_back(Process::Start([plan = round.Plan()] { return StaySilent(plan, 100); }));
  }
  round.Strikes();
  ExpectWork(round, kSecond / 2);
}

}  // namespace perseus::faults
