// fault_campaign runs the real agent with real clients and fake GPUs, and injects faults.
// docs/reliability.md lists the problems that it found, and how often it tried each fault.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "tests/faults/faults.h"
#include "tests/faults/hanging_file.h"

namespace perseus::faults {
namespace {

constexpr FaultNeeds kRoot = {.root = true};
constexpr FaultNeeds kSmallDisk = {.environment = {.has_small_disk = true}};
constexpr FaultNeeds kClockShim = {.environment = {.has_clock_shim = true}};
constexpr FaultNeeds kFewFiles = {.environment = {.open_files = 192}};
constexpr FaultNeeds kWholeShare = {.whole_share = true};
constexpr FaultNeeds kManyGpus = {.gpus = 16};
constexpr AgentEnvironment kDeviceFiles = {.has_device_files = true};
constexpr AgentEnvironment kOldKernel = {.has_device_files = true, .has_old_kernel = true};
constexpr FaultNeeds kOtherUsers = {.environment = kDeviceFiles, .root = true};
constexpr FaultNeeds kOldUsers = {.environment = kOldKernel, .root = true};
constexpr FaultNeeds kFuse = {
    .environment = kDeviceFiles, .root = true, .obstacle = ObstacleToFuse};
constexpr FaultNeeds kOldFuse = {
    .environment = kOldKernel, .root = true, .obstacle = ObstacleToFuse};

constexpr Fault kFaults[] = {
    {"kill-client", "clients get SIGKILL at random moments", KillClients},
    {"kill-agent", "the agent gets SIGKILL at a random moment and is started again", KillAgent},
    {"terminate-agent", "the agent gets SIGTERM", TerminateAgent, 5},
    {"kill-restoring", "the agent gets SIGKILL while it restores GPUs, and again as it starts",
     KillAgentWhileRestoring, 5},
    {"full-disk", "the disk has no space for the agent's state", FillDisk, 10, kSmallDisk},
    {"failing-restore", "the driver refuses to unlock one GPU for a while", FailRestores, 10},
    {"reload-driver", "the driver disappears and comes back with nothing set", ReloadDriver, 10},
    {"wall-clock", "the wall clock jumps by years, in both directions", ShiftWallClock, 50,
     kClockShim},
    {"hang", "a client stops, and continues after its lease has ended", HangClient, 50},
    {"recycled-pid", "another process gets the process number of a lease holder",
     RecycleProcessNumber, 10, kRoot},
    {"nonsense", "four connections send 10,000 malformed messages per second",
     SendMalformedMessages, 50},
    {"silence", "100 connections send nothing", KeepSilence, 10},
    {"long-silence", "the same until the agent closes them", KeepSilenceForAMinute, 1000,
     kWholeShare},
    {"crowd", "200 clients contend for 16 GPUs", Contend, 50, kManyGpus},
    {"descriptors", "400 connections, while the agent may have 192 open files", TakeAllDescriptors,
     50, kFewFiles},
    {"other-user", "ordinary users with and without the right to a GPU request leases",
     ServeOtherUsers, 10, kOtherUsers},
    {"descriptor-storm",
     "a process with 20,000 open descriptors sends descriptors and requests without a pause",
     SendManyDescriptors, 20, kOtherUsers},
    {"storm-old-kernel",
     "the same, as on Linux before 6.16, where the agent's socket accepts descriptors",
     SendManyDescriptors, 20, kOldUsers},
    {"fuse", "a process sends files of its own file system (FUSE), whose close never ends",
     PassHangingFiles, 20, kFuse},
    {"fuse-old-kernel", "the same, as on Linux before 6.16", PassHangingFiles, 20, kOldFuse},
};

struct Options {
  int rounds = 10;
  std::string fault = "all";
  std::uint64_t seed = 1;
  std::optional<int> round;
};

struct Outcome {
  int rounds = 0;
  int violations = 0;
  int struck = 0;  // Rounds in which a client's clock was set at the moment of the fault.
  std::uint64_t leases = 0;
  std::uint64_t landed = 0;
  std::uint64_t messages = 0;
  double slowest_ms = 0;
  std::vector<long> memory_kb;  // The current agent's memory after each round.
  double seconds = 0;
};

double Mean(const std::vector<long>& values, std::size_t begin, std::size_t end) {
  return static_cast<double>(std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                             values.begin() + static_cast<std::ptrdiff_t>(end),
                                             0L)) /
         static_cast<double>(end - begin);
}

// Returns the growth in kB of the agent's memory, from its mean in the first quarter of the rounds
// to its mean in the last quarter. nullopt if this agent has run for too few rounds.
std::optional<double> Growth(const Outcome& outcome) {
  constexpr std::size_t kFewest = 40;
  const std::size_t count = outcome.memory_kb.size();
  if (count < kFewest) return std::nullopt;
  return Mean(outcome.memory_kb, count - count / 4, count) - Mean(outcome.memory_kb, 0, count / 4);
}

// Without a leak, malloc may keep this much memory. Each thread has an arena. An arena returns
// memory only if 128 KiB at its end are free (M_TRIM_THRESHOLD). The agent has two threads for each
// GPU, and one more thread.
double MostGrowth(const Fault& fault) { return (2 * fault.needs.gpus + 1) * 128.0; }

void PrintEnd(const std::filesystem::path& log) {
  constexpr std::size_t kBytes = 2000;
  const auto text = ReadFile(log);
  if (!text) return;
  const std::size_t begin = text->size() > kBytes ? text->find('\n', text->size() - kBytes) + 1 : 0;
  fmt::print(stderr, "the end of the agent's log:\n{}", text->substr(begin));
}

// The rounds of one fault. They use one node. After each violation, they use a new node.
class Series {
 public:
  Series(const Fault& fault, const Options& options) : fault_(fault), options_(options) {}

  Outcome Run() {
    const Nanoseconds begin = RealClock().Now();
    const int count = Rounds();
    for (int round = 0; round < count; ++round) {
      if (options_.round && *options_.round != round) continue;
      ++outcome_.rounds;
      RunOne(round);
    }
    try {
      if (node_) node_->StopAgent();
    } catch (const Violation& violation) {
      Report(count, violation);
    }
    if (const auto growth = Growth(outcome_); growth && *growth > MostGrowth(fault_)) {
      Report(count, Violation(fmt::format("the agent's memory grew by {:.0f} kB, and at most "
                                          "{:.0f} kB are normal",
                                          *growth, MostGrowth(fault_))));
    }
    // A fault that only occurs while no clock is set would show nothing.
    constexpr int kEnough = 20;
    if (outcome_.rounds >= kEnough && outcome_.struck == 0) {
      Report(count, Violation("no fault occurred while a clock was set"));
    }
    outcome_.seconds = ToSeconds(RealClock().Now() - begin);
    return std::move(outcome_);
  }

 private:
  int Rounds() const {
    const int rounds = options_.rounds / fault_.one_in;
    return fault_.needs.whole_share ? rounds : std::max(rounds, 1);
  }

  void RunOne(int number) {
    SplitMix64 random{options_.seed * 1'000'003 + static_cast<std::uint64_t>(number)};
    const auto board = MakeBoard();
    try {
      if (!node_) {
        node_.emplace(fault_.needs.gpus, options_.seed, fault_.needs.environment);
        node_->StartAgent();
      }
      const pid_t agent = node_->agent_pid();
      Round round{*node_, random, board};
      fault_.run(round);
      node_->Settle();
      if (round.was_changed) ++outcome_.struck;
      if (agent != node_->agent_pid()) outcome_.memory_kb.clear();
      outcome_.memory_kb.push_back(node_->OwnMemory());
    } catch (const Violation& violation) {
      Report(number, violation);
      node_.reset();
    }
    outcome_.leases += board->leases;
    outcome_.landed += board->landed;
    outcome_.messages += board->messages;
    outcome_.slowest_ms =
        std::max(outcome_.slowest_ms, static_cast<double>(board->slowest_ns) / 1e6);
  }

  void Report(int round, const Violation& violation) {
    ++outcome_.violations;
    fmt::print(stderr, "VIOLATION --fault {} --seed {} --rounds {} --round {}: {}\n", fault_.name,
               options_.seed, options_.rounds, round, violation.what());
    if (node_) PrintEnd(node_->log());
  }

  const Fault& fault_;
  const Options& options_;
  std::optional<Node> node_;
  Outcome outcome_;
};

void PrintHead() {
  fmt::print("{:<16}{:>7}{:>11}{:>9}{:>9}{:>9}{:>10}{:>12}{:>12}\n", "fault", "rounds",
             "violations", "seconds", "struck", "leases", "switches", "slowest ms", "growth kB");
}

void PrintLine(const Fault& fault, const Outcome& outcome) {
  const auto growth = Growth(outcome);
  fmt::print(
      "{:<16}{:>7}{:>11}{:>9.1f}{:>9}{:>9}{:>10}{:>12.1f}{:>12}{}\n", fault.name, outcome.rounds,
      outcome.violations, outcome.seconds, outcome.struck, outcome.leases, outcome.landed,
      outcome.slowest_ms, growth ? fmt::format("{:.0f}", *growth) : "-",
      outcome.messages == 0 ? "" : fmt::format("  ({} messages or connections)", outcome.messages));
  std::fflush(stdout);
}

int RunCampaign(const Options& options) {
  PrintHead();
  int violations = 0;
  for (const Fault& fault : kFaults) {
    if (options.fault != "all" && options.fault != fault.name) continue;
    if (fault.needs.root && !IsIsolated()) {
      fmt::print("{:<16}   skipped: it needs root\n", fault.name);
      continue;
    }
    if (const std::string obstacle = fault.needs.obstacle ? fault.needs.obstacle() : "";
        !obstacle.empty()) {
      fmt::print("{:<16}   skipped: {}\n", fault.name, obstacle);
      continue;
    }
    const Outcome outcome = Series(fault, options).Run();
    if (outcome.rounds == 0) continue;
    PrintLine(fault, outcome);
    violations += outcome.violations;
  }
  if (!IsIsolated()) fmt::print("without root, a limit on file sizes replaced the full disk\n");
  return violations == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App program("Injects faults into the agent's node and checks that all GPUs are restored.");
  program
      .add_option("--rounds", options.rounds, "Rounds of the most frequent faults (default: 10)")
      ->check(CLI::Range(1, 1'000'000));
  std::vector<std::string> names = {"all"};
  std::string about;
  for (const Fault& fault : kFaults) {
    names.emplace_back(fault.name);
    about += fmt::format("  {:<16} 1 in {:<5} {}\n", fault.name, fault.one_in, fault.what);
  }
  program.footer("Faults, and their share of the rounds (at least one round):\n" + about);
  program.add_option("--fault", options.fault, "A fault of the list below, or all (default: all)")
      ->check(CLI::IsMember(names));
  program.add_option("--seed", options.seed, "Seed of all random choices (default: 1)");
  program.add_option("--round", options.round,
                     "Runs only this round; a violation prints its number");
  CLI11_PARSE(program, argc, argv);
  return RunIsolated([&] { return RunCampaign(options); });
}

}  // namespace
}  // namespace perseus::faults

int main(int argc, char** argv) { return perseus::faults::Main(argc, argv); }
