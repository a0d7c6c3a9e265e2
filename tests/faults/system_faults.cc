// What the agent stands on gives way: the disk, the driver, the time of day.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <ctime>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "tests/faults/faults.h"

namespace perseus::faults {
namespace {

namespace fs = std::filesystem;
using fake_nvml::Function;

// No more room for the agent's state, until this ends.
class FullDisk {
 public:
  explicit FullDisk(Node& node) : node_(node) {
    if (IsApart()) {
      Fill();
    } else {
      LimitFileSize(0);
    }
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    if (IsApart()) {
      std::error_code ignored;
      fs::remove(FillPath(), ignored);
    } else {
      LimitFileSize(RLIM_INFINITY);
    }
  }

 private:
  fs::path FillPath() const { return node_.state().parent_path() / "fill"; }

  void Fill() const {
    const int file = open(FillPath().c_str(), O_WRONLY | O_CREAT, 0600);
    const std::array<char, 4096> zeros{};
    while (write(file, zeros.data(), zeros.size()) > 0) {
    }
    close(file);
  }

  void LimitFileSize(rlim_t most) const {
    const rlimit limit{most, RLIM_INFINITY};
    prlimit(node_.agent_pid(), RLIMIT_FSIZE, &limit, nullptr);
  }

  Node& node_;
};

void RequireNoLease(Round& round, const std::string& uuid, const std::string& why) {
  auto client = Client::Connect(round.node.socket());
  Require(client.has_value(), "the agent takes no connection");
  Require(!client->Acquire({uuid}), "a lease of " + uuid + " was granted " + why);
}

}  // namespace

void FillDisk(Round& round) {
  Process holder = round.StartHolder();
  {
    const FullDisk full(round.node);
    round.NapUpTo(20'000);
    round.Strikes();
    // The limit that stands for a full disk goes with the process.
    const bool agent_dies = IsApart() && round.random() % 3 == 0;
    if (agent_dies) round.node.KillAgent();
    holder.Kill();
    // Nothing has to be written for a restore to begin.
    if (agent_dies) round.node.StartAgent();
    // Clocks come back although it cannot be saved that they did, and nobody gets what he could not
    // be given back.
    const Nanoseconds begin = RealClock().Now();
    while (round.node.IsChanged()) {
      Require(RealClock().Now() - begin < 30'000'000'000, "a full disk keeps clocks locked");
      NapMicroseconds(1000);
    }
    for (const std::string& uuid : round.node.uuids()) {
      RequireNoLease(round, uuid, "that could not be saved");
    }
    Require(!round.node.IsChanged(), "a GPU was changed that could not be saved");
  }
}

void FailRestores(Round& round) {
  fake_nvml::FakeNvml& fake = round.node.fake();
  Process holder = round.StartHolder();
  const int gpu = static_cast<int>(round.random() % static_cast<unsigned>(fake.gpu_count()));
  for (const Function function : {Function::kResetSmClock, Function::kSetSmClock}) {
    fake.Fail(gpu, function, fake_nvml::kUnknown);
  }
  const bool is_changed = round.node.Now(gpu) != round.node.Expected(gpu);
  round.Strikes();
  holder.Kill();
  const Nanoseconds begin = RealClock().Now();
  for (int other = 0; other < fake.gpu_count(); ++other) {
    // One GPU's failure is not the others'.
    while (other != gpu && round.node.Now(other) != round.node.Expected(other)) {
      Require(RealClock().Now() - begin < 30'000'000'000,
              "a restore waits for another GPU's, which fails");
      NapMicroseconds(1000);
    }
  }
  RequireNoLease(round, fake.Uuid(gpu), "before it was back");
  round.NapUpTo(200'000);
  Require(!is_changed || round.node.Now(gpu) != round.node.Expected(gpu),
          "a failing driver set a clock");
  fake.Heal();
}

void ReloadDriver(Round& round) {
  constexpr int kClockMhz = 1200;
  fake_nvml::FakeNvml& fake = round.node.fake();
  // One that asks for the same clock all the time must get it on the new driver, too, which knows
  // nothing of it. (The agent's observers look every 100 ms; no reload is as fast as that.)
  const bool lives_on = round.random() % 2 == 0;
  Process holder = round.StartHolder(30, kClockMhz);
  round.NapUpTo(20'000);
  round.Strikes();
  // A reload drops every lock and limit, an administrator's too; the SM clock of a GPU that is lent
  // is declared, and comes back.
  for (int gpu = 0; gpu < fake.gpu_count(); ++gpu) {
    round.node.Expected(gpu).memory_lock.reset();
    round.node.Expected(gpu).power_limit_mw = fake_nvml::GpuSpec().default_power_limit_mw;
  }
  fake.UnloadDriver();
  if (!lives_on) holder.Kill();
  NapMicroseconds(250'000);
  round.NapUpTo(250'000);
  fake.LoadDriver();
  const Nanoseconds begin = RealClock().Now();
  for (int gpu = 0; lives_on && gpu < fake.gpu_count(); ++gpu) {
    while (fake.SmLock(gpu) != fake_nvml::ClockRange{kClockMhz, kClockMhz}) {
      Require(RealClock().Now() - begin < 30'000'000'000,
              "a client's clock is not set on the new driver: GPU " + std::to_string(gpu));
      NapMicroseconds(1000);
    }
  }
  Require(round.board->lost == 0, "a lease was lost with the driver");
  holder.Kill();
  round.node.Settle();
  round.node.SetAsAdministrator();
}

void ShiftWallClock(Round& round) {
  constexpr std::int64_t kYear = 365 * 86'400;
  Process holder = round.StartHolder(1);
  const std::int64_t shifts[] = {10 * kYear, -20 * kYear, 3600, -3600, 29 * 60, 0};
  const std::uint64_t lost = round.board->lost;
  // Longer than the heartbeat's second in all.
  for (const std::int64_t shift : shifts) {
    round.node.ShiftWallClock(shift);
    NapMicroseconds(250'000);
    round.Strikes();
    Require(round.board->lost == lost, "a lease ended as the wall clock was set");
  }
  // Silence counts all the same.
  round.node.ShiftWallClock(-10 * kYear);
  holder.Send(SIGSTOP);
  round.node.Settle(1);
  round.node.ShiftWallClock(0);
  // That the agent really saw another year stands in its log.
  const std::time_t then = std::time(nullptr) - 10 * kYear;
  std::array<char, 8> year{};
  std::tm parts{};
  std::strftime(year.data(), year.size(), "%Y-", localtime_r(&then, &parts));
  const auto log = ReadFile(round.node.log());
  Require(log && log->find(year.data()) != std::string::npos,
          "the agent's wall clock was not shifted, so nothing was shown");
}

}  // namespace perseus::faults
