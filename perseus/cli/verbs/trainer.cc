// `perseus trainer` runs a training job without GPUs, for experiments and for tests.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/system_cause.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/simulation/trainer/message.h"
#include "perseus/simulation/trainer/rank_process.h"
#include "perseus/simulation/trainer/training.h"
#include "perseus/simulation/virtual_gpu/shared_clock.h"

namespace perseus::cli {
namespace {

constexpr const char* kTrainerAbout =
    "Run a training job on virtual GPUs. It has a process for each rank, the schedule of the job,\n"
    "tensors that go from stage to stage over sockets, and the client library of a real job. It\n"
    "computes nothing: the time and energy of an instruction are those of the profile at the\n"
    "present clock of the GPU. Ends after --steps, or, after SIGTERM, at the end of the step.";
constexpr const char* kTrainerExamples =
    "  perseus agent --devices virtual:a.toml --socket a.sock --state a.json \\\n"
    "      --metrics off &\n"
    "  perseus trainer --job job.toml --profile profile.csv --node a.toml \\\n"
    "      --agent a.sock --steps 50 --job-directory run\n"
    "  perseus trainer --job job.toml --profile profile.csv --node a.toml \\\n"
    "      --node b.toml --agent a.sock --agent b.sock --pipelines 2 --steps 50 \\\n"
    "      --plan out/plans/no-slowdown.json";

struct TrainerFlags {
  job::JobSettings job;
  std::vector<std::string> nodes;
  std::vector<std::string> agents;
  std::vector<std::string> job_directories;
  std::string plan;
  std::string record;
  int steps = 0;
  double scale = 1;
  double timeout_s = 30;
  bool as_json = false;
  std::string as_rank;  // The parent adds this flag for the process of a rank.
};

// What every process of the trainer derives from the flags, in the same way.
struct Workload {
  plan_file::PlannedJob planned;
  profile::Profile profile;
  std::vector<trainer::TrainingNode> nodes;
  std::vector<trainer::AssignedGpu> gpus;
  int ranks() const { return static_cast<int>(planned.schedule.pp_ranks.size()); }
};

Result<std::vector<trainer::TrainingNode>> OpenNodes(const TrainerFlags& flags) {
  if (!flags.plan.empty() && flags.agents.empty()) {
    return Fail(
        "--plan needs --agent, because only an agent sets clocks (start perseus agent --devices "
        "virtual:FILE for each node, and give its socket with --agent)");
  }
  if (!flags.agents.empty() && flags.agents.size() != flags.nodes.size()) {
    return Fail(
        "{} --node, but {} --agent (give one --agent for each node, in the same order; off means "
        "no agent)",
        flags.nodes.size(), flags.agents.size());
  }
  const std::vector<std::string>& directories = flags.job_directories;
  if (directories.size() > 1 && directories.size() != flags.nodes.size()) {
    return Fail(
        "{} --node, but {} --job-directory (give one for all nodes, or one for each, in the same "
        "order)",
        flags.nodes.size(), directories.size());
  }
  std::vector<trainer::TrainingNode> nodes;
  for (std::size_t i = 0; i < flags.nodes.size(); ++i) {
    PERSEUS_ASSIGN_OR_RETURN(auto node, virtual_gpu::VirtualNode::Open(flags.nodes[i]));
    nodes.push_back({std::move(node), flags.nodes[i],
                     flags.agents.empty() ? "off" : flags.agents[i],
                     directories.empty() ? "" : directories[std::min(i, directories.size() - 1)]});
  }
  return nodes;
}

Result<Workload> LoadWorkload(const TrainerFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto job, job::LoadJob(flags.job));
  if (job.planned.IsGeneralGraph()) {
    return Fail("the trainer runs pipelines, not general graphs (remove graph and --graph)");
  }
  if (job.planned.model.gpus_per_stage != 1) {
    return Fail(
        "gpus_per_stage is {}, but a pp_rank of the trainer has one GPU (add --gpus-per-stage 1)",
        job.planned.model.gpus_per_stage);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(job.planned.profile));
  PERSEUS_ASSIGN_OR_RETURN(auto profile, profile::ParseProfile(text, job.planned.profile));
  PERSEUS_ASSIGN_OR_RETURN(auto nodes, OpenNodes(flags));
  Workload workload{
      std::move(job.planned), trainer::Scaled(profile, flags.scale), std::move(nodes), {}};
  workload.planned.model.fixed = trainer::Scaled(workload.planned.model.fixed, flags.scale);
  PERSEUS_ASSIGN_OR_RETURN(
      auto gpus, trainer::AssignGpus(workload.nodes, workload.planned.pipelines, workload.ranks()));
  workload.gpus = std::move(gpus);
  return workload;
}

// ---- A rank ----

// Returns the stages of this pp_rank, such as "0,7".
std::string StagesOf(const schedule::Schedule& schedule, int pp_rank) {
  std::string stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.pp_rank_of_stage[static_cast<std::size_t>(stage)] != pp_rank) continue;
    stages += fmt::format("{}{}", stages.empty() ? "" : ",", stage);
  }
  return stages;
}

Result<void> BeRank(const TrainerFlags& flags, trainer::RankProcessOptions options,
                    const trainer::RankSockets& sockets) {
  PERSEUS_ASSIGN_OR_RETURN(const auto workload, LoadWorkload(flags));
  const schedule::PipelineModel& model = workload.planned.model;
  PERSEUS_ASSIGN_OR_RETURN(auto work, trainer::MakeRankWork(workload.planned.schedule, options.rank,
                                                            workload.profile, model));
  const int place = options.pipeline * workload.ranks() + options.rank;
  const trainer::AssignedGpu& assigned = workload.gpus.at(static_cast<std::size_t>(place));
  options.gpu = assigned.gpu;
  options.work = std::move(work);
  options.p2p = model.fixed.p2p;
  options.stages = StagesOf(workload.planned.schedule, options.rank);
  options.pp_ranks = workload.ranks();
  options.control = sockets.control;
  options.peers.insert(sockets.peers.begin(), sockets.peers.end());
  return trainer::RunRankProcess(workload.nodes[static_cast<std::size_t>(assigned.node)].node,
                                 options);
}

Result<void> RunRank(const TrainerFlags& flags) {
  trainer::RankProcessOptions options;
  int begin = 0;  // The position of the sockets in the text.
  if (std::sscanf(flags.as_rank.c_str(), "%d:%d,%n", &options.pipeline, &options.rank, &begin) !=
      2) {
    return Fail("--as-rank is only for the trainer itself (remove it)");
  }
  const std::string_view text =
      std::string_view(flags.as_rank).substr(static_cast<std::size_t>(begin));
  PERSEUS_ASSIGN_OR_RETURN(const auto sockets, trainer::ParseRankSockets(text));
  auto run = BeRank(flags, std::move(options), sockets);
  if (run) return run;
  // The parent prints the error of a rank, once.
  (void)trainer::SendMessage(
      sockets.control, trainer::TextMessage(trainer::MessageKind::kFailed, run.error().Message()));
  std::_Exit(1);
}

// ---- The parent ----

// Returns the command line of this process. A rank reads the same flags.
Result<std::vector<std::string>> OwnCommand() {
  PERSEUS_ASSIGN_OR_RETURN(const auto line, ReadFile("/proc/self/cmdline"));
  std::vector<std::string> words;
  std::istringstream parts(line);
  for (std::string word; std::getline(parts, word, '\0');) words.push_back(word);
  if (words.empty()) return FailAs(ErrorKind::kSystem, "/proc/self/cmdline is empty (mount /proc)");
  words.front() = "/proc/self/exe";
  return words;
}

struct Figures {
  double time_s = 0;            // The mean of iterations.
  double time_deviation_s = 0;  // The standard deviation of iterations.
  double energy_j = 0;          // The mean of iterations, for all pipelines together.
  double published_energy_j = 0;
};

Figures FiguresOf(const trainer::TrainingSummary& summary) {
  Figures figures;
  const auto count = static_cast<double>(summary.steps.size());
  if (summary.steps.empty()) return figures;
  for (const trainer::TrainingStep& step : summary.steps) {
    figures.time_s += ToSeconds(step.time) / count;
    figures.energy_j += step.energy_j / count;
    figures.published_energy_j += step.published_energy_j / count;
  }
  for (const trainer::TrainingStep& step : summary.steps) {
    const double off_s = ToSeconds(step.time) - figures.time_s;
    figures.time_deviation_s += off_s * off_s;
  }
  if (summary.steps.size() > 1) {
    figures.time_deviation_s = std::sqrt(figures.time_deviation_s / (count - 1));
  }
  return figures;
}

std::string FormatJson(const Workload& workload, const trainer::TrainingSummary& summary) {
  const Figures figures = FiguresOf(summary);
  const trainer::RankStatistics& statistics = summary.statistics;
  const auto mean_ms = [&](Nanoseconds sum) {
    return ToMilliseconds(sum) /
           static_cast<double>(std::max<std::int64_t>(1, statistics.instructions));
  };
  nlohmann::ordered_json json{{"steps", summary.steps.size()},
                              {"pipelines", workload.planned.pipelines},
                              {"pp_ranks", workload.ranks()},
                              {"iteration_time_s", figures.time_s},
                              {"iteration_time_deviation_s", figures.time_deviation_s},
                              {"iteration_energy_j", figures.energy_j},
                              {"published_iteration_energy_j", figures.published_energy_j},
                              {"instructions", statistics.instructions},
                              {"clock_requests", statistics.clock_requests},
                              {"warnings", statistics.warnings},
                              {"wakeup_late_ms",
                               {{"mean", mean_ms(statistics.wakeup_late_sum)},
                                {"most", ToMilliseconds(statistics.wakeup_late_most)}}},
                              {"start_late_ms",
                               {{"mean", mean_ms(statistics.start_late_sum)},
                                {"most", ToMilliseconds(statistics.start_late_most)}}},
                              {"forecast_off_ms",
                               {{"mean", mean_ms(statistics.forecast_off_sum)},
                                {"most", ToMilliseconds(statistics.forecast_off_most)}}}};
  return JsonText(json, 2) + "\n";
}

std::string FormatText(const Workload& workload, const trainer::TrainingSummary& summary) {
  const Figures figures = FiguresOf(summary);
  return fmt::format(
      "{} of {} of {} ({})\n"
      "iteration time    {:.6f} s, standard deviation {:.6f} s\n"
      "iteration energy  {:.4f} J on all GPUs ({:.4f} J by the counters that drivers publish)\n"
      "clock requests    {}\n",
      Counted(std::ssize(summary.steps), "step"), Counted(workload.planned.pipelines, "pipeline"),
      Counted(workload.ranks(), "pp_rank"), workload.planned.schedule.name, figures.time_s,
      figures.time_deviation_s, figures.energy_j, figures.published_energy_j,
      summary.statistics.clock_requests);
}

// begin_s has the same origin as begin_ns of the steps in rank logs.
std::string FormatRecordFile(const trainer::TrainingSummary& summary) {
  std::string text = "step,begin_s,time_s,energy_j,published_energy_j\n";
  for (std::size_t i = 0; i < summary.steps.size(); ++i) {
    const trainer::TrainingStep& step = summary.steps[i];
    text += fmt::format("{},{:.9f},{:.9f},{:.6f},{:.6f}\n", i, ToSeconds(step.begin),
                        ToSeconds(step.time), step.energy_j, step.published_energy_j);
  }
  return text;
}

Result<void> RunParent(const Streams& streams, const TrainerFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(
      CheckReplacesNoInput(flags.record, {flags.job.profile, flags.job.job_file, flags.plan}));
  PERSEUS_ASSIGN_OR_RETURN(auto workload, LoadWorkload(flags));
  trainer::TrainingOptions options;
  options.nodes = workload.nodes;
  options.gpus = workload.gpus;
  options.pipelines = workload.planned.pipelines;
  options.ranks = workload.ranks();
  const schedule::Schedule& schedule = workload.planned.schedule;
  for (int rank = 0; rank < options.ranks; ++rank) {
    // This call reports an error of a rank before any process starts.
    PERSEUS_RETURN_IF_ERROR(
        trainer::MakeRankWork(schedule, rank, workload.profile, workload.planned.model));
    options.neighbors.push_back(trainer::NeighborsOf(schedule, rank));
  }
  options.steps = flags.steps;
  options.rank_timeout = ToNanoseconds(flags.timeout_s);
  options.warn = [&streams](std::string_view text) { streams.Warn(text); };
  options.environment = {{"PERSEUS_JOB", "trainer"}};
  for (const std::string& directory : flags.job_directories) {
    // The directory exists early, so that a coordinator that starts at the same time finds it.
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
      return SystemFail(error.value(), "cannot create this directory", InFile(directory));
    }
    const auto& clock = options.nodes.front().node.spec().clock;
    if (auto set = virtual_gpu::SetClockOfJob(directory, clock); !set) return set;
  }
  if (!flags.plan.empty()) options.environment.emplace_back("PERSEUS_PLAN", flags.plan);
  PERSEUS_ASSIGN_OR_RETURN(options.command, OwnCommand());
  options.command.emplace_back("--as-rank");

  PERSEUS_ASSIGN_OR_RETURN(const auto summary, trainer::RunTraining(options));
  if (!flags.record.empty()) {
    if (auto written = WriteFileAtomically(flags.record, FormatRecordFile(summary)); !written) {
      return written;
    }
  }
  return streams.Print(flags.as_json ? FormatJson(workload, summary)
                                     : FormatText(workload, summary));
}

}  // namespace

Verb AddTrainerVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<TrainerFlags>(program, "trainer", kTrainerAbout, kTrainerExamples);
  add("--profile", flags->job.profile, "FILE", "Time and energy of its instructions (CSV)",
      InputFile());
  add("--node", flags->nodes, "FILE", "A node of virtual GPUs (TOML); repeatable", InputFile())
      ->allow_extra_args(false)
      ->required();
  add("--agent", flags->agents, "SOCKET",
      "The socket of the agent of a node, or off; one for each node (default: off)")
      ->allow_extra_args(false);
  add("--steps", flags->steps, "N", "Iterations (default: 0, until SIGTERM)",
      WholeNumberIn({0, 1'000'000'000}));
  add("--job-directory", flags->job_directories, "DIR",
      "Directory for assignments and rank logs (PERSEUS_JOB_DIR); one for all nodes, or one for "
      "each node")
      ->allow_extra_args(false);
  add("--plan", flags->plan, "FILE", "A plan to follow from the start (PERSEUS_PLAN)", InputFile());
  add("--scale", flags->scale, "FACTOR",
      "Multiply the times and energies of the profile by this (default: 1)",
      NumberIn({1e-3, 1e3, "as a factor"}));
  add("--timeout", flags->timeout_s, "SECONDS",
      "How long a rank may keep the others waiting (default: 30)",
      NumberIn({0.1, 86'400, "in seconds"}));
  add("--record", flags->record, "FILE",
      "Write the time and energy of every step, as the virtual GPUs know them (CSV)");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of text");
  // The flag is not for users. CLI11 does not show a flag in an empty group.
  verb->add_option("--as-rank", flags->as_rank)->group("");
  AddJobFlags(*verb, flags->job);
  return {verb, [flags = flags](const Streams& streams) {
            return flags->as_rank.empty() ? RunParent(streams, *flags) : RunRank(*flags);
          }};
}

}  // namespace perseus::cli
