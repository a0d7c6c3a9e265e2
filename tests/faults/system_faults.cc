// Faults of the system below the agent: disk, driver and wall clock.
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

// While this object exists, the disk has no space for the agent's state.
class FullDisk {
 public:
  explicit FullDisk(Node& node) : node_(node) {
    if (IsIsolated()) {
      Fill();
    } else {
      LimitFileSize(0);
    }
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    if (IsIsolated()) {
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
  Require(client.has_value(), "the agent accepts no connection");
  Require(!client->Acquire({uuid}), "the agent granted a lease of " + uuid + " " + why);
}

}  // namespace

void FillDisk(Round& round) {
  Process holder = round.StartHolder();
  {
    const FullDisk full(round.node);
    round.SleepUpTo(20'000);
    round.Strikes();
    // The limit on file sizes ends with the process. So only a real full disk remains full after
    // the death of the process.
    const bool agent_dies = IsIsolated() && round.random() % 3 == 0;
    if (agent_dies) round.node.KillAgent();
    holder.Kill();
    // The new agent must begin to restore without writing anything.
    if (agent_dies) round.node.StartAgent();
    // The agent restores clocks although it cannot save that it restored them. It lends no GPU
    // whose settings it cannot save.
    const Nanoseconds begin = RealClock().Now();
    while (round.node.IsChanged()) {
      Require(RealClock().Now() - begin < 30'000'000'000, "a full disk keeps clocks locked");
      SleepMicroseconds(1000);
    }
    for (const std::string& uuid : round.node.uuids()) {
      RequireNoLease(round, uuid, "whose state it could not save");
    }
    Require(!round.node.IsChanged(), "a GPU was changed although its state could not be saved");
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
    // The failure of one GPU must not delay the others.
    while (other != gpu && round.node.Now(other) != round.node.Expected(other)) {
      Require(RealClock().Now() - begin < 30'000'000'000,
              "a restore waits for that of another GPU, which fails");
      SleepMicroseconds(1000);
    }
  }
  RequireNoLease(round, fake.Uuid(gpu), "before it was restored");
  round.SleepUpTo(200'000);
  Require(!is_changed || round.node.Now(gpu) != round.node.Expected(gpu),
          "a failing driver set a clock");
  fake.Heal();
}

void ReloadDriver(Round& round) {
  constexpr int kClockMhz = 1200;
  fake_nvml::FakeNvml& fake = round.node.fake();
  // A client that requests the same clock all the time must also get this clock on the new driver,
  // which has no settings. (The agent reads each GPU every 100 ms, and no reload is as fast as
  // that.)
  const bool continues = round.random() % 2 == 0;
  Process holder = round.StartHolder(30, kClockMhz);
  round.SleepUpTo(20'000);
  round.Strikes();
  // A reload removes every lock and limit, including those of the administrator. The agent restores
  // only the declared SM clock of a leased GPU.
  for (int gpu = 0; gpu < fake.gpu_count(); ++gpu) {
    round.node.Expected(gpu).memory_lock.reset();
    round.node.Expected(gpu).power_limit_mw = fake_nvml::GpuSpec().default_power_limit_mw;
  }
  fake.UnloadDriver();
  if (!continues) holder.Kill();
  SleepMicroseconds(250'000);
  round.SleepUpTo(250'000);
  fake.LoadDriver();
  const Nanoseconds begin = RealClock().Now();
  for (int gpu = 0; continues && gpu < fake.gpu_count(); ++gpu) {
    while (fake.SmLock(gpu) != fake_nvml::ClockRange{kClockMhz, kClockMhz}) {
      Require(RealClock().Now() - begin < 30'000'000'000,
              "a client's clock is not set on the new driver: GPU " + std::to_string(gpu));
      SleepMicroseconds(1000);
    }
  }
  Require(round.board->lost == 0, "a lease ended with the driver");
  holder.Kill();
  round.node.Settle();
  round.node.SetAsAdministrator();
}

void ShiftWallClock(Round& round) {
  constexpr std::int64_t kYear = 365 * 86'400;
  Process holder = round.StartHolder(1);
  const std::int64_t shifts[] = {10 * kYear, -20 * kYear, 3600, -3600, 29 * 60, 0};
  const std::uint64_t lost = round.board->lost;
  // Together, the shifts are longer than the heartbeat period of 1 s.
  for (const std::int64_t shift : shifts) {
    round.node.ShiftWallClock(shift);
    SleepMicroseconds(250'000);
    round.Strikes();
    Require(round.board->lost == lost, "a lease ended when the wall clock jumped");
  }
  // If the heartbeat is missing, the lease must nevertheless end.
  round.node.ShiftWallClock(-10 * kYear);
  holder.Send(SIGSTOP);
  round.node.Settle(1);
  round.node.ShiftWallClock(0);
  // The agent's log proves that it saw another year.
  const std::time_t then = std::time(nullptr) - 10 * kYear;
  std::array<char, 8> year{};
  std::tm parts{};
  std::strftime(year.data(), year.size(), "%Y-", localtime_r(&then, &parts));
  const auto log = ReadFile(round.node.log());
  Require(log && log->find(year.data()) != std::string::npos,
          "the agent's wall clock was not shifted, so the test shows nothing");
}

}  // namespace perseus::faults
