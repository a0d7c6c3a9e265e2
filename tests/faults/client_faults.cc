// Faults in which a client dies, hangs, or is mistaken for another process.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/faults/faults.h"

namespace perseus::faults {
namespace {

// Starts a process with the number `pid` that only sleeps. Returns no process if the kernel gave
// this number to another process.
Process StartAs(pid_t pid) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::ofstream("/proc/sys/kernel/ns_last_pid") << pid - 1;
    Process process = Process::Start([] {
      for (;;) pause();
      return 0;
    });
    if (process.pid() == pid) return process;
  }
  return {};
}

}  // namespace

void Round::AwaitChangeInHalf() const {
  if (random() % 2 == 0) return;
  Require(Eventually([&] { return node.IsChanged(); }), "no clock of a client was set");
}

Process Round::StartHolder(double heartbeat_s, std::optional<int> clock_mhz) const {
  ClientPlan plan = Plan(heartbeat_s);
  plan.clock_mhz = clock_mhz;
  return StartHolder(plan);
}

Process Round::StartHolder(const ClientPlan& plan) const {
  const std::uint64_t landed = board->landed;
  Process holder = Process::Start([&plan] { return Hold(plan); });
  Require(Eventually([&] { return board->landed > landed; }), "no clock of a client was set");
  return holder;
}

void KillClients(Round& round) {
  std::vector<Process> clients;
  for (std::uint64_t count = 1 + round.random() % 3; count > 0; --count) {
    clients.push_back(Process::Start([plan = round.Plan()] { return Churn(plan); }));
  }
  round.SleepUpTo(30'000);
  round.AwaitChangeInHalf();
  for (Process& client : clients) {
    round.Strikes();
    client.Kill();
    round.SleepUpTo(2000);
  }
}

void HangClient(Round& round) {
  Process client = round.StartHolder(1);
  round.SleepUpTo(50'000);
  round.Strikes();
  client.Send(SIGSTOP);
  round.node.Settle(1);
  // The client continues as if it still had its lease.
  client.Send(SIGCONT);
  SleepMicroseconds(50'000);
  Require(!round.node.IsChanged(), "a client whose lease has ended sets clocks");
}

// The lease holder dies, its child keeps the connection open, and another process gets its process
// number.
void RecycleProcessNumber(Round& round) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
  Process client = Process::Start([&round, write_end = ends[1]] {
    auto connection = Client::Connect(round.node.socket());
    const auto lease = connection->Acquire(round.node.uuids());
    if (!lease) return 1;
    ++round.board->leases;
    for (int gpu = 0; gpu < connection->publisher().gpu_count(); ++gpu) {
      connection->publisher().Publish(gpu, 1200);
    }
    const pid_t child = fork();
    if (child == 0) pause();
    if (write(write_end, &child, sizeof child) != sizeof child) return 1;
    for (;;) pause();
  });
  close(ends[1]);
  pid_t child = 0;
  const bool is_received = read(ends[0], &child, sizeof child) == sizeof child;
  close(ends[0]);
  Require(is_received, "a client got no lease");
  Require(Eventually([&] { return round.node.IsChanged(); }), "no clock of a client was set");
  const pid_t number = client.pid();
  round.Strikes();
  client.Kill();
  const Process other = StartAs(number);
  try {
    Require(other.pid() == number, "the kernel did not assign the number again");
    round.node.Settle();
  } catch (...) {
    kill(child, SIGKILL);
    throw;
  }
  kill(child, SIGKILL);
}

}  // namespace perseus::faults
