// `perseus job` registers, shows, changes and ends a job of a server, and reports its stragglers.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/flags/target_flags.h"
#include "perseus/cli/verbs/job_cap.h"
#include "perseus/cli/verbs/job_text.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/job_planning/planning.h"
#include "perseus/planning/job/job.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kJobAbout = "Manage one job of a perseus server (docs/server.md).";
constexpr const char* kJobExamples =
    "  perseus job register gpt3-run7 --job job.toml --profile profile.csv\n"
    "  perseus job show gpt3-run7\n"
    "  perseus job target gpt3-run7 --slowdown 5\n"
    "  perseus job cap gpt3-run7 llama-run2 --power 2MW --until 20:00\n"
    "  perseus job straggler gpt3-run7 1 --slowdown 25 --starts-in 30 \\\n"
    "      --expires-in 600\n"
    "  perseus job straggler gpt3-run7 1 --over\n"
    "  perseus job stragglers gpt3-run7\n"
    "  perseus job end gpt3-run7";

struct Flags {
  ServerFlags server;
  std::string job;
  bool as_json = false;
  job::JobSettings registered;
  std::string profile;
  std::string schedule_output;
  std::string gpu;
  bool has_no_detection = false;
  std::optional<double> most_harm_percent;
  std::string owner;
  std::string user;
  TargetFlags targets;
  CapFlags cap;
  std::string plan = "current";
  int dp_rank = 0;
  std::optional<double> slowdown_percent;
  std::optional<double> starts_in_s;
  std::optional<double> expires_in_s;
  bool is_over = false;
};

std::string PathOf(const Flags& flags, std::string_view rest = "") {
  return fmt::format("/v1/jobs/{}{}", http::PercentEncoded(flags.job), rest);
}

// Returns the target that the flags give. Without target flags, the target is no slowdown.
Result<ordered_json> TargetOf(const Streams& streams, const TargetFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto target, AskedTarget(flags, 1));
  WarnOfLikelyUnits(streams, {target});
  return job_planning::TargetJson(target);
}

// Returns only the name and the sizes of a generated schedule, because they are easy to read.
// Returns any other schedule whole.
ordered_json ScheduleJson(const schedule::Schedule& schedule) {
  const auto names = schedule::ScheduleNames();
  if (std::ranges::find(names, schedule.name) != names.end()) {
    const schedule::ScheduleSpec spec{
        .name = schedule.name,
        .pp_ranks = static_cast<int>(schedule.pp_ranks.size()),
        .microbatches = schedule.microbatches,
        .chunks = schedule.stages() / static_cast<int>(schedule.pp_ranks.size())};
    const auto generated = schedule::GenerateSchedule(spec);
    if (generated && generated->pp_ranks == schedule.pp_ranks) {
      return {{"kind", spec.name},
              {"pp_ranks", spec.pp_ranks},
              {"microbatches", spec.microbatches},
              {"chunks", spec.chunks}};
    }
  }
  return {{"csv", schedule::FormatSchedule(schedule)}};
}

ordered_json FixedJson(const schedule::FixedInstructions& fixed) {
  ordered_json json{{"p2p_s", ToSeconds(fixed.p2p)},
                    {"load_s", ToSeconds(fixed.load.time)},
                    {"all_reduce_s", ToSeconds(fixed.all_reduce.time)},
                    {"optimizer_s", ToSeconds(fixed.optimizer.time)}};
  const std::pair<const char*, double> energies[] = {{"load_j", fixed.load.energy_j},
                                                     {"all_reduce_j", fixed.all_reduce.energy_j},
                                                     {"optimizer_j", fixed.optimizer.energy_j}};
  for (const auto& [key, energy_j] : energies) {
    if (energy_j >= 0) json[key] = energy_j;
  }
  return json;
}

// Returns the registration of the job that `perseus plan` would plan.
Result<ordered_json> RegistrationOf(const Streams& streams, const Flags& flags,
                                    const job::UnprofiledJob& job) {
  PERSEUS_ASSIGN_OR_RETURN(auto target, TargetOf(streams, flags.targets));
  if (job.auto_schedule && !AsksForTarget(flags.targets)) {
    target = job_planning::TargetJson(job.auto_schedule->default_target());
  }
  const plan_file::PlannedJob& planned = job.planned;
  const schedule::PipelineModel& model = planned.model;
  ordered_json gpu{{"blocking_power_w", model.blocking_power_w},
                   {"switch_latency_ms", ToMilliseconds(planned.switch_latency)},
                   {"switch_stall_s", ToSeconds(planned.switch_cost.stall)},
                   {"switch_energy_j", planned.switch_cost.energy_j}};
  const std::string& gpu_name = flags.gpu.empty() ? job.facts.gpu_name : flags.gpu;
  if (!gpu_name.empty()) gpu["name"] = gpu_name;
  if (job.facts.most_changes_per_s) gpu["most_changes_per_s"] = *job.facts.most_changes_per_s;
  ordered_json registration{{"key", flags.job},
                            {"pipelines", planned.pipelines},
                            {"tensor_parallel", model.gpus_per_stage},
                            {"schedule", ScheduleJson(planned.schedule)},
                            {"gpu", std::move(gpu)},
                            {"fixed", FixedJson(model.fixed)},
                            {"target", std::move(target)}};
  const few_switches::ChangeLimit limit =
      recipe::RulesWith(flags.registered.changes, {job.most_switches}).known_limit();
  if (limit.most_changes) registration["max_switches"] = *limit.most_changes;
  if (!flags.owner.empty()) registration["owner"] = flags.owner;
  if (!flags.user.empty()) registration["user"] = flags.user;
  if (flags.has_no_detection) registration["detect_stragglers"] = false;
  if (flags.most_harm_percent) registration["most_harm_percent"] = *flags.most_harm_percent;
  return registration;
}

// Returns the text of the profile, or an empty text if no path is given. Checks the profile before
// the server does.
Result<std::string> ReadProfile(const std::string& path) {
  if (path.empty()) return "";
  auto csv = ReadFile(path);
  if (!csv) return csv;
  PERSEUS_RETURN_IF_ERROR(profile::ParseProfile(*csv, path));
  return csv;
}

// Makes the same checks of the profile as the server. So if the server would refuse the profile, no
// job is registered.
Result<void> CheckFits(const Flags& flags, const std::string& csv,
                       const std::string& registration) {
  if (flags.profile.empty()) return {};
  store::JobRecord job;
  job.key = flags.job;
  job.body = registration;
  // The server reports a wrong registration, because its message is better.
  if (!job_planning::StoredJobSpec(registration)) return {};
  const auto prepared = job_planning::PrepareJob(job, {.version = 1, .csv = csv});
  if (prepared) return {};
  return Fail(prepared,
              fmt::format("{} does not fit the job, so nothing is registered", flags.profile));
}

// If the server refuses the profile, ends the job again if this command created it. Otherwise a
// corrected command would find a job that was registered differently.
Result<void> Upload(const Streams& streams, ServerClient& server, const Flags& flags,
                    const std::string& csv, const ServerClient::Registered& registered) {
  const auto put = server.Send("PUT", PathOf(flags, "/profile"), csv, "text/csv");
  if (put) {
    for (const auto& warning : put->value("warnings", ordered_json::array())) {
      streams.Warn(warning.get<std::string>());
    }
    return {};
  }
  const bool is_refused = put.error().kind != ErrorKind::kSystem;
  if (registered.is_new && is_refused && server.Send("POST", PathOf(flags, "/end"), "{}")) {
    return Fail(put, fmt::format("the job is not registered: {}", flags.profile));
  }
  return Fail(
      put, fmt::format("job {} is registered, without this profile: {}", flags.job, flags.profile));
}

std::string ProfileText(const Flags& flags, const plan_file::PlannedJob& planned,
                        const ordered_json& job) {
  if (!flags.profile.empty()) return "; planning has started";
  if (job.at("profile_version") != 0) return "";
  if (planned.profile.empty()) return "; no profile yet: --profile FILE";
  return fmt::format(
      "; no profile yet: --profile {} ({} names this file, but only the flag sends it)",
      planned.profile, flags.registered.job_file);
}

Result<void> Register(const Streams& streams, ServerClient& server, const Flags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckReplacesNoInput(
      flags.schedule_output, {flags.profile, flags.registered.job_file, flags.registered.facts}));
  // A search for a schedule needs the profile.
  job::JobSettings described = flags.registered;
  described.profile = flags.profile;
  PERSEUS_ASSIGN_OR_RETURN(const auto job, job::LoadUnprofiledJob(described));
  const plan_file::PlannedJob& planned = job.planned;
  PERSEUS_ASSIGN_OR_RETURN(const auto registration, RegistrationOf(streams, flags, job));
  PERSEUS_ASSIGN_OR_RETURN(const auto csv, ReadProfile(flags.profile));
  PERSEUS_RETURN_IF_ERROR(CheckFits(flags, csv, JsonText(registration)));
  PERSEUS_ASSIGN_OR_RETURN(const auto registered, server.Register(JsonText(registration)));
  if (!flags.profile.empty()) {
    if (auto put = Upload(streams, server, flags, csv, registered); !put) return put;
  }
  if (planned.model.blocking_power_w == 0 && !flags.registered.blocking_power_w) {
    streams.Warn(
        "no blocking power is given: plans use 0 W for waiting GPUs (--blocking-power W, "
        "blocking_power_w in the job file, or --facts FILE)");
  }
  if (!flags.gpu.empty() && !job.facts.gpu_name.empty() && flags.gpu != job.facts.gpu_name) {
    streams.Warn(
        fmt::format("the hardware facts are of the GPU {}, but the job has the GPU {} (give the "
                    "facts of its nodes)",
                    job.facts.gpu_name, flags.gpu));
  }
  std::string answer =
      fmt::format("job {} is {}{}\n", flags.job, registered.job.at("id").get<std::string>(),
                  ProfileText(flags, planned, registered.job));
  if (job.auto_schedule) answer += job::Describe(*job.auto_schedule);
  if (!flags.schedule_output.empty()) {
    PERSEUS_RETURN_IF_ERROR(
        WriteFileAtomically(flags.schedule_output, schedule::FormatSchedule(planned.schedule)));
    answer += fmt::format("its schedule is in {}\n", flags.schedule_output);
  }
  return streams.Print(flags.as_json ? JsonText(registered.job, 2) + "\n" : answer);
}

Result<void> Show(const Streams& streams, ServerClient& server, const Flags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto job, server.Get(PathOf(flags)));
  return streams.Print(flags.as_json ? JsonText(job, 2) + "\n" : FormatJob(job));
}

Result<void> SetTarget(const Streams& streams, ServerClient& server, const Flags& flags) {
  if (!AsksForTarget(flags.targets)) {
    return Fail(
        "the target is missing (give --slowdown, --deadline, --energy-budget, --power-cap, "
        "--price, --min-energy or --edp; perseus job show {} shows the current one)",
        flags.job);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto target, TargetOf(streams, flags.targets));
  PERSEUS_ASSIGN_OR_RETURN(const auto set,
                           server.Send("PUT", PathOf(flags, "/target"), JsonText(target)));
  if (flags.as_json) return streams.Print(JsonText(set, 2) + "\n");
  // Everywhere, a target is for one pipeline.
  return streams.Print(fmt::format(
      "job {}: {}{}\n", flags.job, set.at("name").get<std::string>(),
      flags.targets.power_caps_w.empty() ? "" : " for each pipeline (perseus job cap caps jobs)"));
}

Result<void> ReportStraggler(const Streams& streams, ServerClient& server, const Flags& flags) {
  if (flags.is_over == flags.slowdown_percent.has_value()) {
    return Fail("give either --slowdown (such as 25, in percent) or --over");
  }
  const std::string path = PathOf(flags, fmt::format("/stragglers/{}", flags.dp_rank));
  if (flags.is_over) {
    PERSEUS_ASSIGN_OR_RETURN(const auto deleted, server.Send("DELETE", path, ""));
    if (flags.as_json) return streams.Print(JsonText(deleted, 2) + "\n");
    const char* const what = deleted.at("deleted").get<bool>() ? "is withdrawn" : "does not exist";
    std::string text = fmt::format("the report that dp_rank {} is slow {}\n", flags.dp_rank, what);
    if (deleted.contains("detected")) {
      text += fmt::format(
          "the server measures that dp_rank {} takes {} longer, which counts until it is fast "
          "again\n",
          flags.dp_rank, FormatPercent(deleted["detected"].get<double>() - 1));
    }
    return streams.Print(text);
  }
  ordered_json body{{"slowdown", 1 + *flags.slowdown_percent / 100}};
  if (flags.starts_in_s) body["starts_in"] = *flags.starts_in_s;
  if (flags.expires_in_s) body["expires_in"] = *flags.expires_in_s;
  PERSEUS_ASSIGN_OR_RETURN(const auto put, server.Send("PUT", path, JsonText(body)));
  if (flags.as_json) return streams.Print(JsonText(put, 2) + "\n");
  return streams.Print(FormatStragglers(ordered_json::array({put})));
}

Result<void> ListStragglers(const Streams& streams, ServerClient& server, const Flags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto list, server.Get(PathOf(flags, "/stragglers")));
  if (flags.as_json) return streams.Print(JsonText(list, 2) + "\n");
  std::string text = FormatStragglers(list.at("stragglers"));
  if (text.empty()) text = "no straggler\n";
  return streams.Print(text + "\n" + FormatPastStragglers(list.at("past")));
}

Result<void> PrintPlan(const Streams& streams, ServerClient& server, const Flags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(
      const auto plan, server.GetText(PathOf(flags, "/plans/" + http::PercentEncoded(flags.plan))));
  const auto json = ParseJson(plan);
  if (!json.is_object() || json.value("format", nlohmann::json()) != "perseus-plan") {
    return FailAs(
        ErrorKind::kSystem,
        "the server's answer is not a plan (is it a perseus server, and of this version?)");
  }
  return streams.Print(plan);
}

Result<void> Cap(const Streams& streams, ServerClient& server, const Flags& flags) {
  return CapJobs(streams, server, flags.cap, flags.as_json);
}

Result<void> End(const Streams& streams, ServerClient& server, const Flags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto ended, server.Send("POST", PathOf(flags, "/end"), "{}"));
  if (flags.as_json) return streams.Print(JsonText(ended, 2) + "\n");
  return streams.Print(
      fmt::format("job {} has ended; its nodes remove their assignment\n", flags.job));
}

void AddRegisterFlags(CLI::App& verb, Flags& flags) {
  AddJobFlags(verb, flags.registered, JobComes::kMaybeWithProfile);
  const FlagAdder add(verb);
  add("--profile", flags.profile, "FILE", "Profile of the job (CSV), if it is measured",
      InputFile());
  add("--write-schedule", flags.schedule_output, "FILE",
      "Write the schedule (CSV) for the training, such as that of --schedule auto");
  add("--gpu", flags.gpu, "NAME", "Name of the GPUs (default: that of --facts)");
  AddMaxSwitchesFlag(verb, flags.registered.changes,
                     "At most this many clock changes of each GPU per iteration");
  add("--owner", flags.owner, "OWNER",
      "The team or person that the job belongs to (default: as the token says)");
  add("--user", flags.user, "USER",
      "The user of the nodes whose ranks may join the job, such as ann or 1000 (default: every "
      "user)");
  verb.add_flag("--no-detection", flags.has_no_detection,
                "Do not detect stragglers; use only reported ones");
  add("--max-harm", flags.most_harm_percent, "PERCENT",
      "Take a plan back that makes steps longer than the default clocks by more than this "
      "(default: 1)",
      NumberIn({0.1, 100, "percent"}));
  AddTargetFlags(verb, flags.targets, Targets::kOne);
}

void AddStragglerFlags(CLI::App& verb, Flags& flags) {
  const FlagAdder add(verb);
  add("dp_rank", flags.dp_rank, "DP_RANK", "Number of the pipeline, from 0",
      WholeNumberIn({0, kMostPipelines - 1}))
      ->required();
  add("--slowdown", flags.slowdown_percent, "PCT",
      "How much longer its iteration takes, such as 25 (or 1.25x)", StragglerSlowdown());
  add("--starts-in", flags.starts_in_s, "SECONDS", "When the slowdown begins (default: 0)",
      NumberIn({0, 1e8, "in seconds"}));
  add("--expires-in", flags.expires_in_s, "SECONDS",
      "When the slowdown ends (default: an hour after it begins)",
      NumberIn({0, 1e8, "in seconds"}));
  verb.add_flag("--over", flags.is_over, "The pipeline is no longer slow");
}

}  // namespace

Verb AddJobVerb(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = AddVerb(program, "job", kJobAbout, kJobExamples).verb;
  verb->require_subcommand(1);
  using Run = Result<void> (*)(const Streams&, ServerClient&, const Flags&);
  auto actions = std::make_shared<std::vector<std::pair<CLI::App*, Run>>>();
  enum class Jobs { kOne, kMany };
  const auto add = [&](const char* name, const char* about, const char* scope, Run run,
                       Jobs jobs = Jobs::kOne) {
    CLI::App* sub = verb->add_subcommand(name, about);
    if (jobs == Jobs::kOne) {
      FlagAdder{*sub}("job", flags->job, "JOB", "Key or id of the job")->required();
    }
    AddServerFlags(*sub, flags->server, scope);
    if (scope == std::string_view("job")) AddReasonFlag(*sub, flags->server);
    // `plan` has no flag --json, because a plan file is already JSON.
    if (run != PrintPlan) sub->add_flag("--json", flags->as_json, "Print JSON, for scripts");
    actions->emplace_back(sub, run);
    return sub;
  };
  AddRegisterFlags(
      *add("register", "Register a job, or find the job with this key", "job", Register), *flags);
  add("show", "Show the state of the job, its assignment and its nodes", "read", Show);
  AddTargetFlags(*add("target", "Set another target while the job runs", "job", SetTarget),
                 flags->targets, Targets::kOne);
  AddCapFlags(*add("cap", "Divide a power cap among jobs, with the least loss of work", "job", Cap,
                   Jobs::kMany),
              flags->cap);
  FlagAdder{*add("plan", "Print a plan file", "read", PrintPlan)}(
      "plan", flags->plan, "PLAN",
      "current, no-slowdown, slowdown-5, deadline-2.9s, least-energy, … (default: current)");
  AddStragglerFlags(
      *add("straggler", "Report that a pipeline is slow, will be slow, or is no longer slow", "job",
           ReportStraggler),
      *flags);
  add("stragglers", "List the stragglers of the job, and those that ended", "read", ListStragglers);
  add("end", "End the job", "job", End);
  return {verb, [flags, actions](const Streams& streams) {
            for (const auto& [sub, run] : *actions) {
              if (!sub->parsed()) continue;
              return WithServer(flags->server, [&, &run = run](ServerClient& server) {
                return run(streams, server, *flags);
              });
            }
            return Result<void>();
          }};
}

}  // namespace perseus::cli
