// `perseus run` runs a training with Perseus attached, and says at its end what it took and saved.
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/system_cause.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/child_process.h"
#include "perseus/cli/verbs/run_environment.h"
#include "perseus/cli/verbs/turnkey.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/tuner/run_summary.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunAbout =
    "Run a training with Perseus attached, without a change of its code. Processes that use a\n"
    "supported framework attach by themselves (see docs/frameworks.md), use the node's agent or\n"
    "start one, and record their steps. At the end, says what the steps took. With --tune, also\n"
    "profiles the job while it trains, makes a plan, puts it into force and measures what it "
    "saves.\n"
    "The exit status is that of the training. It also runs if Perseus cannot do anything.";
constexpr const char* kRunExamples =
    "Examples:\n"
    "  perseus run -- torchrun --nproc-per-node 4 train.py\n"
    "  perseus run --tune -- torchrun --nproc-per-node 4 train.py\n"
    "  perseus run --plan perseus-run-1/tuned/plan.json -- \\\n"
    "      torchrun --nproc-per-node 4 train.py\n"
    "\n"
    "On several nodes, run it once on each, with the same --job-directory on a file\n"
    "system that all share. One of them tunes.";

constexpr int kLookEveryMs = 200;
constexpr int kNotFound = 127;
constexpr int kCannotRun = 126;

struct RunFlags {
  std::vector<std::string> command;
  std::string job_directory;
  std::string plan;
  bool tunes = false;
  std::optional<int> budget_steps;
  std::optional<double> budget_slowdown_percent;
  std::optional<int> follow_steps;
  std::optional<double> switch_latency_ms;
  std::optional<double> p2p_s;
  std::optional<double> assignment_delay_s;
  std::string facts;
  int verify_steps = 100;
  int status = 0;  // Of the training.
};

template <typename Value>
void AddFlag(std::vector<std::string>& words, const char* name, const std::optional<Value>& value) {
  if (value) words.insert(words.end(), {name, fmt::format("{}", *value)});
}

TurnkeyOptions TurnkeyOptionsOf(const Streams& streams, const RunFlags& flags,
                                const fs::path& job_directory, fs::file_time_type start) {
  TurnkeyOptions options;
  options.job_directory = job_directory;
  options.start = start;
  options.say = [&streams](const std::string& line) { streams.Say(line); };
  options.verify_steps = flags.verify_steps;
  options.budget_steps = flags.budget_steps.value_or(options.budget_steps);
  options.follow_steps = flags.follow_steps.value_or(options.follow_steps);
  AddFlag(options.tune_flags, "--budget-steps", flags.budget_steps);
  AddFlag(options.tune_flags, "--budget-slowdown", flags.budget_slowdown_percent);
  AddFlag(options.tune_flags, "--follow-steps", flags.follow_steps);
  AddFlag(options.tune_flags, "--switch-latency", flags.switch_latency_ms);
  AddFlag(options.tune_flags, "--p2p", flags.p2p_s);
  AddFlag(options.tune_flags, "--assignment-delay", flags.assignment_delay_s);
  if (!flags.facts.empty())
    options.tune_flags.insert(options.tune_flags.end(), {"--facts", flags.facts});
  return options;
}

// One `perseus run` of a job directory holds this until it ends: it tunes, and sums up the job.
// Empty if another one does.
Result<FileDescriptor> Coordinate(const fs::path& job_directory) {
  constexpr const char* kLock = "run.lock";
  if (job_directory.empty()) return FileDescriptor();
  PERSEUS_ASSIGN_OR_RETURN(const auto folder, protocol::OwnFolder::Open(job_directory));
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor lock, folder.OpenFile(kLock));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return FileDescriptor();
  return FailAs(ErrorKind::kSystem, "{}: cannot lock: {}", (job_directory / kLock).string(),
                CauseAndRemedy(errno));
}

std::string WhyNothingIsRecorded(int status) {
  if (status != 0) return fmt::format("before the training ended with status {}", status);
  const char* attach = std::getenv("PERSEUS_ATTACH");
  if (attach != nullptr && std::string_view(attach) == "off") {
    return "because PERSEUS_ATTACH is off (unset it, or call perseus.attach)";
  }
  return "(is the framework one that Perseus attaches? See docs/frameworks.md)";
}

std::vector<std::string> Describe(const tuner::RunSummary& run, const fs::path& directory,
                                  int status) {
  if (run.ranks == 0) {
    return {fmt::format("no rank recorded a step in {} {}", directory.string(),
                        WhyNothingIsRecorded(status))};
  }
  std::string line = fmt::format("{} of {} ranks", Counted(run.steps, "step"), run.ranks);
  if (run.step_time_s > 0) line += fmt::format(", {:.4g} s a step", run.step_time_s);
  line += run.energy_j > 0
              ? fmt::format(", {} J a step, {} J in all", FormatQuantity(run.energy_per_step_j),
                            FormatQuantity(run.energy_j))
              : "; the energy was not measured (see perseus doctor)";
  std::vector<std::string> lines{line + fmt::format(" (logs in {})", directory.string())};
  if (run.missing_ranks > 0) {
    lines.push_back(
        fmt::format("{} more ranks recorded no step, so these numbers are not those of the whole "
                    "job (the output of the ranks says why)",
                    run.missing_ranks));
  }
  // Ranks that end together may differ by a step or two.
  if (run.fewest_steps + 2 < run.steps) {
    lines.push_back(
        fmt::format("a rank recorded only {}, so the energy is not that of the whole job (the "
                    "output of the ranks says why)",
                    Counted(run.fewest_steps, "step")));
  }
  if (run.planned_steps > 0) {
    lines.push_back(
        fmt::format("{} of {} steps of all ranks had a plan, {} of them ran in another order",
                    run.planned_steps, run.steps * run.ranks, run.off_plan_steps));
    if (run.off_plan_steps == run.planned_steps) {
      lines.push_back(
          "the plan is not for this job, so it saved nothing (perseus schedule has the "
          "order that the ranks run)");
    }
    // In the first steps, a rank may still wait for its lease.
    if (run.unset_steps * 20 > run.planned_steps) {
      lines.push_back(
          fmt::format("{} of these steps ran at the default clocks and saved nothing, because the "
                      "ranks had no lease of their GPUs (their warnings say why; see also perseus "
                      "doctor)",
                      run.unset_steps));
    }
  }
  return lines;
}

// Waits for the end of the training. Passes signals on to it, and tunes meanwhile.
int Follow(Child& training, const RunSignals& signals, std::optional<Turnkey>& turnkey) {
  for (;;) {
    if (const auto status = training.Status()) return *status;
    for (const int number : signals.Wait(turnkey ? kLookEveryMs : -1)) training.Signal(number);
    if (turnkey) turnkey->Advance();
  }
}

Result<void> RunTraining(const Streams& streams, RunFlags& flags) {
  if (flags.command.empty()) {
    return Fail("the training is missing (perseus run [options] -- torchrun … train.py)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto signals, RunSignals::Take());
  RunEnvironment environment = PrepareRun(flags.job_directory, flags.plan, flags.command);
  const fs::path& directory = environment.job_directory;
  for (const std::string& warning : environment.warnings) streams.Say(warning);
  const auto lock = Coordinate(directory);
  const bool is_coordinator = lock && *lock;
  if (!directory.empty()) {
    const bool has_other = lock && !*lock;
    streams.Say(
        fmt::format("recording in {}{}", directory.string(),
                    has_other && flags.tunes ? "; another perseus run tunes this job" : ""));
  }
  if (!lock) {
    streams.Say(fmt::format("{}; this run is not {}summed up", lock.error().message,
                            flags.tunes ? "tuned and not " : ""));
  }
  // A file system may have coarse times.
  const auto start = fs::file_time_type::clock::now() - std::chrono::seconds(2);
  std::optional<Turnkey> turnkey;
  if (flags.tunes && is_coordinator)
    turnkey.emplace(TurnkeyOptionsOf(streams, flags, directory, start));

  ChildSpec spec;
  spec.command = flags.command;
  spec.environment = environment.variables;
  auto training = Child::Start(spec);
  if (!training) {
    flags.status = training.error().kind == ErrorKind::kUnreachable ? kNotFound : kCannotRun;
    streams.Say(training.error().message);
    return {};
  }
  flags.status = Follow(*training, signals, turnkey);
  if (turnkey) turnkey->Finish();
  if (!is_coordinator) return {};
  if (const auto run = tuner::SumUpRun(directory, start)) {
    for (const std::string& line : Describe(*run, directory, flags.status)) streams.Say(line);
  } else {
    streams.Say(run.error().message);
  }
  // The first lines of a long log are far away.
  if (!environment.plan_problem.empty()) streams.Say(environment.plan_problem);
  if (turnkey) {
    for (const std::string& line : turnkey->Summary()) streams.Say(line);
  }
  return {};
}

void AddTuneFlags(CLI::App& verb, RunFlags& flags, CLI::Option* tune) {
  const FlagAdder of_group(verb, "With --tune");
  const auto add = [&](const char* name, auto& value, const char* type, const char* help,
                       CLI::Validator check) {
    of_group(name, value, type, help, std::move(check))->needs(tune);
  };
  add("--budget-steps", flags.budget_steps, "N", "Steps to measure in (default: 60)",
      WholeNumberIn({1, 1'000'000}));
  add("--budget-slowdown", flags.budget_slowdown_percent, "PCT",
      "The largest mean slowdown of these steps (default: 25)", NumberIn({0, 1'000}, "percent"));
  add("--follow-steps", flags.follow_steps, "N",
      "Steps in which each of two plans is measured at its own clocks (default: 12)",
      WholeNumberIn({2, 1'000'000}));
  add("--verify-steps", flags.verify_steps, "N",
      "Steps, with the plan and without, that measure what it saves (default: 100)",
      WholeNumberIn({1, 10'000'000}));
  add("--facts", flags.facts, "FILE", "Hardware facts (TOML) of the GPUs", InputFile());
  add("--switch-latency", flags.switch_latency_ms, "MS",
      "Time from the request of a clock until the GPU has it",
      NumberIn({0, 60'000}, "milliseconds"));
  add("--p2p", flags.p2p_s, "S", "Transfer time from one pp_rank to the next (default: measured)",
      NumberIn({0, 3600}, "in seconds"));
  add("--assignment-delay", flags.assignment_delay_s, "SECONDS",
      "Time until every rank has read an assignment (default: 1)",
      NumberIn({0.1, 600}, "in seconds"));
}

}  // namespace

Verb AddRunVerb(CLI::App& program) {
  auto flags = std::make_shared<RunFlags>();
  const auto [verb, add] = AddVerb(program, "run", kRunAbout, kRunExamples);
  add("--job-directory", flags->job_directory, "DIR",
      "Where steps are recorded (default: a new directory perseus-run-N)");
  CLI::Option* plan = add("--plan", flags->plan, "FILE", "A plan that the training follows");
  CLI::Option* tune =
      verb->add_flag("--tune", flags->tunes, "Profile, plan, follow the plan, and verify it")
          ->excludes(plan);
  AddTuneFlags(*verb, *flags, tune);
  return {verb, [flags](const Streams& streams) { return RunTraining(streams, *flags); },
          [flags](std::vector<std::string> command) { flags->command = std::move(command); },
          [flags] { return flags->status; }};
}

}  // namespace perseus::cli
