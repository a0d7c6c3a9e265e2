// `perseus run` runs a training with Perseus attached. At the end, it prints the energy that the
// training used and saved.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/number.h"
#include "perseus/base/process.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/child_process.h"
#include "perseus/cli/verbs/turnkey.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/tuner/run_summary.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunAbout =
    "Run a training with Perseus attached, without a change of its code. Processes that use a\n"
    "supported framework attach by themselves (see docs/frameworks.md), use the node's agent or "
    "start one, and record their steps. At the end, says what the steps took. With --tune, also "
    "profiles the job while it trains, makes a plan, activates it and measures what it "
    "saves. The exit status is that of the training. It also runs if Perseus cannot do anything.";
constexpr const char* kRunExamples =
    "  perseus run -- torchrun --nproc-per-node 4 train.py\n"
    "  perseus run --tune -- torchrun --nproc-per-node 4 train.py\n"
    "  perseus run --tune --slowdown 2% -- python train.py\n"
    "  perseus run --plan perseus-run-1/tuned/plan.json -- \\\n"
    "      torchrun --nproc-per-node 4 train.py\n"
    "\n"
    "On several nodes, run it once on each, with the same --job-directory on a file\n"
    "system that all share. One of them tunes.";

constexpr int kLookEveryMs = 200;
constexpr int kNotFound = 127;
constexpr int kCannotRun = 126;

Result<fs::path> MakeJobDirectory(const fs::path& wanted) {
  std::error_code error;
  if (!wanted.empty()) {
    const auto ranks = protocol::OwnFolder::Open(wanted, "ranks");
    if (!ranks) return Fail("cannot write to {}: {}", wanted.string(), ranks.error().Message());
    const fs::path absolute = fs::absolute(wanted);
    if (::access((absolute / "ranks").c_str(), W_OK | X_OK) == 0) return absolute;
    return Fail("cannot write to {}: permission denied (name another one with --job-directory)",
                wanted.string());
  }
  const fs::path here = fs::current_path(error);
  for (int number = 1; !error; ++number) {
    const fs::path path = here / fmt::format("perseus-run-{}", number);
    // If the directory exists, this returns false without an error.
    if (fs::create_directory(path, error)) {
      fs::create_directory(path / "ranks", error);
      if (!error) return path;
    }
  }
  return Fail("cannot make a directory in {}: {} (name one with --job-directory)", here.string(),
              error.message());
}

// Returns the Python that runs the command. This is the command itself, or the Python in the first
// line of its script (torchrun). If neither is a Python, returns `python3`.
std::string PythonOf(const std::vector<std::string>& command) {
  const auto is_python = [](const fs::path& file) {
    return file.filename().string().starts_with("python");
  };
  const std::string program = FindProgram(command.front());
  if (is_python(program)) return program;
  for (const std::string& word : InterpreterOf(program)) {
    if (is_python(word)) return word;
    if (!word.ends_with("/env")) break;
  }
  return "python3";
}

// Whether the flags of this Python disable the hook. With -I and -E, Python ignores PYTHONPATH.
// With -S, it ignores sitecustomize.
bool IgnoresHook(const std::vector<std::string>& command) {
  if (!fs::path(command.front()).filename().string().starts_with("python")) return false;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (!word.starts_with('-') || word.starts_with("--")) return false;
    // The rest of the word, or the next word, is the value of such a flag.
    const std::string flags = word.substr(1, word.find_first_of("cmWX") - 1);
    if (flags.find_first_of("IES") != std::string::npos) return true;
    if (flags.size() + 1 < word.size()) return false;
  }
  return false;
}

bool HasHook(const fs::path& package) {
  return ::access((package / "hook" / "sitecustomize.py").c_str(), R_OK) == 0;
}

// Returns the folder of the package `perseus` that this Python imports.
std::optional<fs::path> ImportedPackage(const std::string& python) {
  auto found = RunProgram({python, "-c",
                           "import importlib.util as u; s = u.find_spec('perseus'); "
                           "print(list(s.submodule_search_locations)[0] if s else '')"},
                          "");
  if (!found) return std::nullopt;
  std::string path = *std::move(found);
  while (path.ends_with('\n')) path.pop_back();
  return HasHook(path) ? std::optional<fs::path>(path) : std::nullopt;
}

// Returns the folder of the package `perseus` that was built or installed with this program.
std::optional<fs::path> NeighboringPackage() {
  const fs::path prefix = OwnProgram().parent_path().parent_path();
  // In a wheel, the program is in the package: perseus/bin/perseus.
  for (const fs::path& package :
       {prefix / "python/perseus", prefix / "lib/python3/dist-packages/perseus", prefix}) {
    if (HasHook(package)) return package;
  }
  return std::nullopt;
}

// Returns PYTHONPATH with the hook first. Empty if the package is not found. The hook finds the
// package beside it. The folder with the package is not in PYTHONPATH, because the other modules in
// this folder would hide those of the training.
std::string PythonPath(const std::vector<std::string>& command) {
  auto package = ImportedPackage(PythonOf(command));
  if (!package) package = NeighboringPackage();
  if (!package) return "";
  const std::string before = EnvironmentOr("PYTHONPATH");
  return (*package / "hook").string() + (before.empty() ? "" : ":" + before);
}

// Returns N of "N" or of "MIN:N". 1 if the text has no number.
int MostOf(std::string_view text) {
  text.remove_prefix(text.rfind(':') == std::string_view::npos ? 0 : text.rfind(':') + 1);
  return ParseNumber<int>(text).value_or(1);
}

// Returns the greatest number of nodes in `--nnodes N`, `--nnodes=N` or `--nnodes MIN:MAX` of
// torchrun, the flags of DeepSpeed and Accelerate, or in the variable of torchrun. 1 if there is no
// number.
int NodesOf(const std::vector<std::string>& command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    for (const std::string_view flag : {"--nnodes", "--num_nodes", "--num_machines"}) {
      std::string_view value = command[i];
      if (!value.starts_with(flag)) continue;
      value.remove_prefix(flag.size());
      if (value.empty() && i + 1 < command.size()) value = command[i + 1];
      if (value.starts_with('=')) value.remove_prefix(1);
      return MostOf(value);
    }
  }
  return MostOf(EnvironmentOr("PET_NNODES"));
}

// If a launcher started this program as the first of several ("srun perseus run -- ..."), returns
// the variable of the launcher that says so, with its value. Otherwise, returns an empty text.
std::string VariableOfLauncher() {
  struct Launcher {
    const char* size;
    const char* rank;
  };
  for (const auto& [size, rank] :
       {Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
        Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
        Launcher{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"}, Launcher{"PMI_SIZE", "PMI_RANK"},
        Launcher{"WORLD_SIZE", "RANK"}}) {
    const std::string value = EnvironmentOr(size);
    if (MostOf(value) <= 1) continue;
    return EnvironmentOr(rank, "0") == "0" ? fmt::format("{}={}", size, value) : "";
  }
  return "";
}

// Whether the command starts the training on other nodes, without this program's environment.
bool StartsElsewhere(const std::vector<std::string>& command) {
  const std::string program = fs::path(command.front()).filename();
  if (program == "pdsh" || program == "clush" || program == "ssh") return true;
  const auto names_hosts = [](const std::string& word) {
    return word == "-H" || word.starts_with("--hostfile");
  };
  return program == "deepspeed" && std::any_of(command.begin(), command.end(), names_hosts);
}

// Says which ranks will be missing in the record, and why.
std::vector<std::string> MissingRanks(const std::vector<std::string>& command,
                                      bool has_job_directory) {
  constexpr const char* kEach =
      "start perseus run on each node with the same --job-directory, on a file system that all "
      "nodes share";
  std::vector<std::string> warnings;
  if (StartsElsewhere(command)) {
    warnings.push_back(
        fmt::format("{} does not pass the settings of Perseus to other nodes, so the ranks there "
                    "are not recorded ({})",
                    fs::path(command.front()).filename().string(), kEach));
  }
  if (has_job_directory) return warnings;
  if (const int nodes = NodesOf(command); nodes > 1) {
    warnings.push_back(
        fmt::format("the training runs on {} nodes, but each node records into a directory of its "
                    "own, so ranks are missing in each ({})",
                    nodes, kEach));
  } else if (const std::string variable = VariableOfLauncher(); !variable.empty()) {
    warnings.push_back(fmt::format(
        "a launcher has started perseus run several times ({}), and each of them records into a "
        "directory of its own, so ranks are missing in each (give all of them the same "
        "--job-directory, on a file system that all nodes share)",
        variable));
  }
  return warnings;
}

// The settings with which the training attaches Perseus by itself.
struct RunEnvironment {
  std::map<std::string, std::string> variables;  // Variables to set for the training.
  // The absolute path of the job directory. Empty if no directory can be written. Then nothing is
  // recorded.
  std::filesystem::path job_directory;
  std::vector<std::string> warnings;  // What does not work, why, and what to do.
  std::string plan_problem;           // A warning that says why no rank follows the plan. Or empty.
};

void SetUnlessSet(RunEnvironment& environment, const char* name, const std::string& value) {
  if (EnvironmentOr(name).empty()) environment.variables[name] = value;
}

// Checks the plan. If no rank could read the plan, this is reported before the training begins.
Result<void> CheckPlan(const fs::path& plan) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadRegularFile(plan));
  PERSEUS_ASSIGN_OR_RETURN(const auto parsed, plan_file::ParsePlan(text, plan.string()));
  if (!parsed.job.IsGeneralGraph()) return {};
  return Fail(
      InFile(plan.string()),
      "is a plan of a general graph, but a training job needs a plan of a pipeline (make one "
      "with perseus plan --schedule)");
}

// Prepares the environment of a training. If `job_directory` is empty, makes perseus-run-1 (or the
// next free number) in the working directory. `plan` may be empty. `command` is the training. Its
// Python has to find the package `perseus`. Keeps variables that the user has set (PERSEUS_AGENT,
// PERSEUS_ATTACH, PERSEUS_PROGRAM). Never fails, because a training can run without Perseus.
RunEnvironment PrepareRun(const fs::path& job_directory, const fs::path& plan,
                          const std::vector<std::string>& command) {
  RunEnvironment environment;
  if (auto made = MakeJobDirectory(job_directory)) {
    environment.job_directory = *std::move(made);
    environment.variables["PERSEUS_JOB_DIR"] = environment.job_directory.string();
  } else {
    environment.warnings.push_back(made.error().Message() + "; nothing is recorded");
  }
  SetUnlessSet(environment, "PERSEUS_ATTACH", "auto");
  for (std::string& warning : MissingRanks(command, !job_directory.empty())) {
    environment.warnings.push_back(std::move(warning));
  }
  // The library uses the agent of the node if this agent listens.
  SetUnlessSet(environment, "PERSEUS_AGENT", "own");
  SetUnlessSet(environment, "PERSEUS_PROGRAM", OwnProgram().string());
  const bool attaches = EnvironmentOr("PERSEUS_ATTACH") != "off";
  if (std::string path = PythonPath(command); !path.empty()) {
    environment.variables["PYTHONPATH"] = std::move(path);
  } else if (attaches) {
    environment.warnings.push_back(
        "the Python package perseus is not installed, so no framework is attached: only a program "
        "that opens a session by itself is recorded (install the wheel of Perseus for the Python "
        "of the training)");
  }
  if (attaches && IgnoresHook(command)) {
    environment.warnings.push_back(
        "this Python does not run the hook of Perseus, so no framework is attached (leave out -I, "
        "-E and -S, or call perseus.attach)");
  }
  if (plan.empty()) return environment;
  if (const auto checked = CheckPlan(plan)) {
    std::error_code error;
    environment.variables["PERSEUS_PLAN"] = fs::absolute(plan, error).string();
  } else {
    environment.plan_problem = checked.error().Message() + "; no plan is followed";
    environment.warnings.push_back(environment.plan_problem);
  }
  return environment;
}

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
  double slowdown_percent = 0;
  int verify_steps = 100;
  int status = 0;  // The exit status of the training.
};

template <typename Value>
void AddFlag(std::vector<std::string>& words, const char* name, const std::optional<Value>& value,
             std::string_view unit = "") {
  if (value) words.insert(words.end(), {name, fmt::format("{}{}", *value, unit)});
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
  options.slowdown_percent = flags.slowdown_percent;
  if (flags.slowdown_percent > 0) {
    AddFlag(options.tune_flags, "--slowdown", std::optional(flags.slowdown_percent), "%");
  }
  AddFlag(options.tune_flags, "--budget-steps", flags.budget_steps);
  AddFlag(options.tune_flags, "--budget-slowdown", flags.budget_slowdown_percent, "%");
  AddFlag(options.tune_flags, "--follow-steps", flags.follow_steps);
  AddFlag(options.tune_flags, "--switch-latency", flags.switch_latency_ms);
  AddFlag(options.tune_flags, "--p2p", flags.p2p_s);
  AddFlag(options.tune_flags, "--assignment-delay", flags.assignment_delay_s);
  if (!flags.facts.empty())
    options.tune_flags.insert(options.tune_flags.end(), {"--facts", flags.facts});
  return options;
}

// Locks the job directory. The `perseus run` that holds this lock tunes the job, and summarizes it
// at the end. It holds the lock until it ends. Returns an empty descriptor if another process holds
// the lock.
Result<FileDescriptor> Coordinate(const fs::path& job_directory) {
  if (job_directory.empty()) return FileDescriptor();
  return protocol::OpenJobLock(job_directory, "run.lock");
}

std::string WhyNothingIsRecorded(int status) {
  if (status != 0) return fmt::format("before the training ended with status {}", status);
  const char* attach = std::getenv("PERSEUS_ATTACH");
  if (attach != nullptr && std::string_view(attach) == "off") {
    return "because PERSEUS_ATTACH is off (unset it, or call perseus.attach)";
  }
  return "(is the framework one that Perseus attaches? See docs/frameworks.md)";
}

// What a sample and a token cost, and how long ranks wait for the slowest one.
std::vector<std::string> DescribeShares(const tuner::RunSummary& run) {
  std::vector<std::string> lines;
  std::vector<std::string> costs;
  if (run.samples_per_step > 0 && run.energy_j > 0) {
    costs.push_back(
        fmt::format("a sample costs {:.4g} J", run.energy_per_step_j / run.samples_per_step));
  }
  if (run.tokens_per_step > 0 && run.energy_j > 0) {
    costs.push_back(
        fmt::format("a token costs {:.4g} J", run.energy_per_step_j / run.tokens_per_step));
  }
  if (!costs.empty()) lines.push_back(fmt::format("{}", fmt::join(costs, ", and ")));
  std::vector<std::string> waits;
  const auto add = [&](const std::optional<double>& wait_s, const char* when) {
    if (!wait_s || run.step_time_s <= 0) return;
    waits.push_back(fmt::format("{}{}", FormatPercent(*wait_s / run.step_time_s), when));
  };
  add(run.waiting_s, run.planned_waiting_s ? " without a plan" : "");
  add(run.planned_waiting_s, " with one");
  if (!waits.empty()) {
    lines.push_back(fmt::format("of a step, ranks wait for the slowest one: {} (on average)",
                                fmt::join(waits, ", ")));
  }
  return lines;
}

std::vector<std::string> Describe(const tuner::RunSummary& run, const fs::path& directory,
                                  int status) {
  if (run.ranks == 0 && run.ranks_outside > 0) {
    return {fmt::format(
        "stages ran, but no step of a schedule, so nothing is recorded in {} (the output of the "
        "ranks says why; see docs/frameworks.md)",
        directory.string())};
  }
  if (run.ranks == 0) {
    return {fmt::format("no rank recorded a step in {} {}", directory.string(),
                        WhyNothingIsRecorded(status))};
  }
  std::string line = fmt::format("{} of {} ranks", Counted(run.steps, "step"), run.ranks);
  if (run.step_time_s > 0) {
    const std::string energy =
        run.energy_j > 0 ? fmt::format(" and {} J", FormatQuantity(run.energy_per_step_j)) : "";
    line += fmt::format(", {:.4g} s{} a step (median)", run.step_time_s, energy);
  }
  line += run.energy_j > 0 ? fmt::format(", {} J in all", FormatQuantity(run.energy_j))
                           : "; the energy was not measured (see perseus doctor)";
  std::vector<std::string> lines{line + fmt::format(" (logs in {})", directory.string())};
  std::ranges::move(DescribeShares(run), std::back_inserter(lines));
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
  const auto of_all = [&](std::int64_t steps) {
    return fmt::format("{} of {} steps of all ranks", steps, run.disturbance.of_steps);
  };
  if (run.steps_at_power_limit > 0 && run.reached_mhz > 0) {
    lines.push_back(fmt::format(
        "in {}, GPUs were at their power limit, with a clock of {} MHz in the median{}",
        of_all(run.steps_at_power_limit), run.reached_mhz,
        run.highest_mhz > 0 ? fmt::format(" (their highest clock is {} MHz)", run.highest_mhz)
                            : ""));
  }
  if (run.disturbance.steps * 20 > run.disturbance.of_steps) {
    lines.push_back(
        fmt::format("in {}, {}", of_all(run.disturbance.steps), tuner::Describe(run.disturbance)));
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

// Waits for the end of the training, and passes signals on to the training. Tunes the job in the
// meantime.
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
    streams.Say(fmt::format("{}; this run is not {}summed up", lock.error().Message(),
                            flags.tunes ? "tuned and not " : ""));
  }
  // Subtract 2 s, because the times of a file system may be coarse.
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
    streams.Say(training.error().Message());
    return {};
  }
  flags.status = Follow(*training, signals, turnkey);
  if (turnkey) turnkey->Finish();
  if (!is_coordinator) return {};
  if (const auto run = tuner::SumUpRun(directory, start)) {
    for (const std::string& line : Describe(*run, directory, flags.status)) streams.Say(line);
  } else {
    streams.Say(run.error().Message());
  }
  // Repeat the warning, because the first lines of a long log are easily missed.
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
  add("--slowdown", flags.slowdown_percent, "PCT",
      "How much slower the job may be to save more (default: 0)", SlowdownUpTo(1'000));
  add("--budget-steps", flags.budget_steps, "N", "Steps to measure in (default: 60)",
      WholeNumberIn({1, 1'000'000}));
  add("--budget-slowdown", flags.budget_slowdown_percent, "PCT",
      "The largest mean slowdown of these steps (default: 25)", SlowdownUpTo(1'000));
  add("--follow-steps", flags.follow_steps, "N",
      "Steps in which each of two plans is measured at its own clocks (default: 12)",
      WholeNumberIn({2, 1'000'000}));
  add("--verify-steps", flags.verify_steps, "N",
      "Steps, with the plan and without, that measure what it saves (default: 100)",
      WholeNumberIn({1, 10'000'000}));
  add("--facts", flags.facts, "FILE", "Hardware facts (TOML) of the GPUs", InputFile());
  add("--switch-latency", flags.switch_latency_ms, "MS",
      "Time from the request of a clock until the GPU has it",
      NumberIn({0, 60'000, "milliseconds"}));
  add("--p2p", flags.p2p_s, "S", "Transfer time from one pp_rank to the next (default: measured)",
      NumberIn({0, 3600, "in seconds"}));
  add("--assignment-delay", flags.assignment_delay_s, "SECONDS",
      "Time until every rank has read an assignment (default: 1)",
      NumberIn({0.1, 600, "in seconds"}));
}

}  // namespace

Verb AddRunVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<RunFlags>(program, "run", kRunAbout, kRunExamples);
  add("--job-directory", flags->job_directory, "DIR",
      "Where steps are recorded (default: a new directory perseus-run-N)");
  CLI::Option* plan = add("--plan", flags->plan, "FILE", "A plan that the training follows");
  CLI::Option* tune =
      verb->add_flag("--tune", flags->tunes, "Profile, plan, follow the plan, and verify it")
          ->excludes(plan);
  AddTuneFlags(*verb, *flags, tune);
  return {
      verb, [flags = flags](const Streams& streams) { return RunTraining(streams, *flags); },
      [flags = flags](std::vector<std::string> command) { flags->command = std::move(command); },
      [flags = flags] { return flags->status; }};
}

}  // namespace perseus::cli
