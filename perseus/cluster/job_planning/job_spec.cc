#include "perseus/cluster/job_planning/job_spec.h"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/base/time_text.h"
#include "perseus/base/units.h"
#include "perseus/planning/hardware_facts/assumed.h"
#include "perseus/planning/job/job.h"
#include "perseus/planning/job/job_setup.h"

namespace perseus::job_planning {
namespace {

using json_file::Node;
using json_file::ThrowAt;
using Kind = plan::Target::Kind;

constexpr std::string_view kAboutKeys = "a name of your choice, by which you find the job again";
constexpr std::size_t kMaxKeyBytes = 200;
// The largest number of forwards of one pipeline. It is limited because many requests generate the
// schedule.
constexpr std::int64_t kMaxForwards = 100'000;
constexpr std::int64_t kMaxGpus = 10'000'000;
constexpr NumberRange kChangesRange{0, 1e6, "clock changes per second"};
constexpr NumberRange kJoulesRange{0, kMostJoules, "joules"};
constexpr double kMostSecondsOfTarget = 1e8;  // Three years.

struct KindName {
  Kind kind;
  std::string_view name;
  std::string_view slug_begin;  // The beginning of Slug(). Empty: slug_end is the whole slug.
  std::string_view slug_end;
};
constexpr std::array<KindName, 7> kKinds{
    {{Kind::kSlowdown, "slowdown", "slowdown-", ""},
     {Kind::kDeadline, "deadline", "deadline-", "s"},
     {Kind::kEnergyBudget, "energy_budget", "energy-budget-", "j"},
     {Kind::kPowerCap, "power_cap", "power-cap-", "w"},
     {Kind::kMinEnergy, "min_energy", "", "least-energy"},
     {Kind::kEdp, "edp", "", "least-energy-delay"},
     {Kind::kPrice, "price", "", ""}}};

bool TakesValue(Kind kind) { return kind != Kind::kMinEnergy && kind != Kind::kEdp; }

Kind ReadKind(const Node& node) {
  const std::string text = node.Text();
  for (const KindName& kind : kKinds) {
    if (kind.name == text) return kind.kind;
  }
  std::string names;
  for (const KindName& kind : kKinds) {
    names += (names.empty() ? "\"" : ", \"") + std::string(kind.name) + "\"";
  }
  ThrowAt(node.path, "{} is not a target (expected {})", Excerpt(text), names);
}

// Refuses a search for a schedule. The command line searches for the schedule, and registers the
// result.
void RefuseSearch(const Node& node) {
  const nlohmann::json& value = node.value;
  const bool asks = value == job::kAutoSchedule || (value.is_object() && value.contains("kind") &&
                                                    value["kind"] == job::kAutoSchedule);
  if (!asks) return;
  ThrowAt(
      node.path,
      "is auto, but a server does not search for schedules (perseus job register searches before "
      "it registers)");
}

schedule::Schedule ReadSchedule(const Node& node) {
  constexpr std::array<std::string_view, 5> kKeys{"kind", "pp_ranks", "microbatches", "chunks",
                                                  "csv"};
  RefuseSearch(node);
  node.RequireObject(kKeys);
  Result<schedule::Schedule> schedule;
  if (node.Has("csv")) {
    for (const std::string_view key : kKeys) {
      if (key == "csv" || !node.Has(key)) continue;
      ThrowAt(node.Member(key).path, "cannot be combined with csv (leave one of them out)");
    }
    schedule = schedule::ParseSchedule(node.Member("csv").Text(), "csv");
  } else {
    schedule::ScheduleSpec spec;
    spec.name = node.Member("kind").Text();
    spec.pp_ranks = node.Member("pp_ranks").Count(1, 65536, "a number of pp_ranks, such as 8");
    spec.microbatches =
        node.Member("microbatches").Count(1, 65536, "a number of microbatches, such as 96");
    if (node.Has("chunks")) {
      spec.chunks =
          node.Member("chunks").Count(1, 4096, "a number of stages of each pp_rank, such as 2");
    }
    const std::int64_t forwards = std::int64_t{spec.pp_ranks} * spec.microbatches * spec.chunks;
    if (forwards > kMaxForwards) {
      ThrowAt(node.path,
              "has {} forward instructions (expected at most {}; perseus plan accepts more)",
              forwards, kMaxForwards);
    }
    schedule = schedule::GenerateSchedule(spec);
  }
  if (!schedule) ThrowAt(node.path, "is not possible: {}", schedule.error().Message());
  return *std::move(schedule);
}

template <typename Number>
void ReadNumber(const Node& node, std::string_view key, const NumberRange& range, Number& value) {
  if (node.Has(key)) value = node.Member(key).Number(range.least, range.most, range.unit);
}

// Reads a time. `unit_s` is the unit of the number, in seconds.
void ReadTime(const Node& node, std::string_view key, const NumberRange& range, Nanoseconds& time,
              double unit_s = 1) {
  std::optional<double> number;
  ReadNumber(node, key, range, number);
  if (number) time = ToNanoseconds(*number * unit_s);
}

void ReadGpu(const Node& node, JobSpec& spec) {
  node.RequireObject({"name", "blocking_power_w", "switch_latency_ms", "switch_stall_s",
                      "switch_energy_j", "most_changes_per_s"});
  if (node.Has("name")) spec.gpu_name = node.Member("name").Text();
  ReadNumber(node, "blocking_power_w", job::kBlockingPowerRange,
             spec.planned.model.blocking_power_w);
  ReadTime(node, "switch_latency_ms", job::kSwitchLatencyRange, spec.planned.switch_latency,
           1.0 / kMillisecondsPerSecond);
  ReadNumber(node, "most_changes_per_s", kChangesRange, spec.most_changes_per_s);
  if (node.Has("switch_energy_j")) spec.planned.switch_cost.stall = 0;
  ReadTime(node, "switch_stall_s", job::kStallRange, spec.planned.switch_cost.stall);
  ReadNumber(node, "switch_energy_j", job::kSwitchEnergyRange, spec.planned.switch_cost.energy_j);
}

void ReadFixed(const Node& node, schedule::FixedInstructions& fixed) {
  node.RequireObject(
      {"p2p_s", "load_s", "all_reduce_s", "optimizer_s", "load_j", "all_reduce_j", "optimizer_j"});
  ReadTime(node, "p2p_s", job::kSecondsRange, fixed.p2p);
  ReadTime(node, "load_s", job::kSecondsRange, fixed.load.time);
  ReadTime(node, "all_reduce_s", job::kSecondsRange, fixed.all_reduce.time);
  ReadTime(node, "optimizer_s", job::kSecondsRange, fixed.optimizer.time);
  ReadNumber(node, "load_j", kJoulesRange, fixed.load.energy_j);
  ReadNumber(node, "all_reduce_j", kJoulesRange, fixed.all_reduce.energy_j);
  ReadNumber(node, "optimizer_j", kJoulesRange, fixed.optimizer.energy_j);
}

// Reads the name or the id of a user.
std::string ReadUser(const Node& node) {
  constexpr std::size_t kMaxUserBytes = 253;
  std::string user = node.Text();
  if (user.empty() || user.size() > kMaxUserBytes ||
      user.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789._@+\\$-") != std::string::npos) {
    ThrowAt(node.path,
            "is not a user (expected a name or a user id of the nodes, such as ann or "
            "1000)");
  }
  return user;
}

constexpr std::string_view kTargetKeys[] = {"kind", "value", "gpu_hour"};

// Ignores other keys.
plan::Target ReadKnownKeys(const Node& node, int gpus) {
  plan::Target target;
  target.kind = ReadKind(node.Member("kind"));
  target.gpus = gpus;
  const NumberRange range = plan::ValueRange(target.kind);
  if (TakesValue(target.kind)) {
    target.value = node.Member("value").Number(range.least, range.most, range.unit);
  } else if (node.Has("value")) {
    ThrowAt(node.Member("value").path, "has no meaning for this kind of target (leave it out)");
  }
  if (target.kind == Kind::kPrice) {
    target.gpu_hour = node.Member("gpu_hour").Number(range.least, range.most, "dollars");
  } else if (node.Has("gpu_hour")) {
    ThrowAt(node.Member("gpu_hour").path, "is only for a price (leave it out)");
  }
  return target;
}

}  // namespace

std::string ReadRegisteredKey(const Node& body) {
  if (!body.value.is_object()) ThrowAt("", "is not an object (write {{...}})");
  return ReadJobKey(body.Member("key", kAboutKeys));
}

JobSpec ReadJobSpec(const Node& body) {
  body.RequireObject({"key", "pipelines", "tensor_parallel", "schedule", "gpu", "fixed", "target",
                      "detect_stragglers", "max_switches", "owner", "user", "most_harm_percent"});
  JobSpec spec;
  spec.planned.switch_latency = hardware_facts::kAssumedSwitchLatency;
  spec.planned.switch_cost.stall = hardware_facts::kAssumedSwitchStall;
  spec.key = ReadJobKey(body.Member("key", kAboutKeys));
  spec.planned.schedule = ReadSchedule(
      body.Member("schedule", R"(such as {"kind": "1f1b", "pp_ranks": 8, "microbatches": 96})"));
  if (body.Has("pipelines")) {
    spec.planned.pipelines = body.Member("pipelines").Count(1, 100'000, "a number of pipelines");
  }
  if (body.Has("tensor_parallel")) {
    spec.planned.model.gpus_per_stage =
        body.Member("tensor_parallel").Count(1, 4096, "a number of GPUs of each stage");
  }
  if (body.Has("gpu")) ReadGpu(body.Member("gpu"), spec);
  if (body.Has("fixed")) ReadFixed(body.Member("fixed"), spec.planned.model.fixed);
  const int gpus =
      static_cast<int>(spec.planned.schedule.pp_ranks.size()) * spec.planned.model.gpus_per_stage;
  if (body.Has("target")) spec.target = ReadTarget(body.Member("target"), gpus);
  spec.target.gpus = gpus;
  if (std::int64_t{gpus} * spec.planned.pipelines > kMaxGpus) {
    ThrowAt("pipelines",
            "gives the job more than {} GPUs (check pipelines, pp_ranks and tensor_parallel)",
            kMaxGpus);
  }
  if (body.Has("owner")) spec.owner = ReadOwner(body.Member("owner"));
  if (body.Has("user")) spec.user = ReadUser(body.Member("user"));
  if (body.Has("most_harm_percent")) {
    spec.most_harm_percent = body.Member("most_harm_percent").Number(0.1, 100, "percent");
  }
  if (body.Has("detect_stragglers")) {
    spec.detects_stragglers = body.Member("detect_stragglers").Flag();
  }
  if (body.Has("max_switches")) {
    spec.most_switches =
        body.Member("max_switches").Count(0, job::kMostSwitches, "a number of clock changes");
  }
  return spec;
}

Result<JobSpec> StoredJobSpec(std::string_view body) {
  return json_file::Read(body, "the job's registration", kDeepestJobSpec, ReadJobSpec);
}

std::string ReadJobKey(const Node& node) {
  std::string key = node.Text();
  const bool fits = !key.empty() && key.size() <= kMaxKeyBytes &&
                    key.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == std::string::npos;
  if (!fits || key == "." || key == ".." || key.starts_with("j-")) {
    ThrowAt(node.path,
            "{} cannot name a job (expected 1 to {} letters, digits, '.', '_' and '-', not "
            "beginning with \"j-\")",
            Excerpt(key), kMaxKeyBytes);
  }
  return key;
}

std::string ReadOwner(const Node& node) {
  constexpr std::size_t kMaxOwnerBytes = 253;
  std::string owner = node.Text();
  if (owner.empty() || owner.size() > kMaxOwnerBytes ||
      owner.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789._@:/ -") != std::string::npos) {
    ThrowAt(node.path,
            "is not an owner (expected the name of a team or a person, such as team-a: up to {} "
            "letters, digits, spaces and any of ._@:/-)",
            kMaxOwnerBytes);
  }
  return owner;
}

plan::Target ReadTarget(const Node& node, int gpus) {
  node.RequireObject(kTargetKeys);
  return ReadKnownKeys(node, gpus);
}

nlohmann::ordered_json TargetJson(const plan::Target& target) {
  nlohmann::ordered_json json;
  for (const KindName& kind : kKinds) {
    if (kind.kind == target.kind) json["kind"] = kind.name;
  }
  if (TakesValue(target.kind)) json["value"] = target.value;
  if (target.kind == Kind::kPrice) json["gpu_hour"] = target.gpu_hour;
  return json;
}

JobTarget ReadNewTarget(const Node& node, const JobTarget& before, Milliseconds now) {
  node.RequireObject({"kind", "value", "gpu_hour", "expires_in"});
  JobTarget target{.target = ReadKnownKeys(node, before.target.gpus)};
  if (!node.Has("expires_in")) return target;
  target.expires =
      now + FromSeconds(node.Member("expires_in").Number(1, kMostSecondsOfTarget, "seconds"));
  target.then = before.expires == 0 ? before.target : before.then;
  return target;
}

Result<JobTarget> TargetOf(const store::JobRecord& job, const plan::Target& registered) {
  if (job.target.empty()) return JobTarget{.target = registered};
  return ParseJobTarget(job.target, registered.gpus);
}

Result<JobTarget> ParseJobTarget(std::string_view text, int gpus) {
  return json_file::Read(text, "the job's target", kDeepestJobSpec, [gpus](const Node& node) {
    node.RequireObject({"kind", "value", "gpu_hour", "expires", "then"});
    JobTarget target{.target = ReadKnownKeys(node, gpus)};
    if (!node.Has("expires")) return target;
    const Node expires = node.Member("expires");
    const auto time = ParseTime(expires.Text());
    if (!time) ThrowAt(expires.path, "is not a time (expected 2026-11-30T20:00:00.000Z)");
    target.expires = *time;
    target.then = ReadTarget(node.Member("then"), gpus);
    return target;
  });
}

nlohmann::ordered_json JobTargetJson(const JobTarget& target) {
  auto json = TargetJson(target.target);
  if (target.expires == 0) return json;
  json["expires"] = TimeText(target.expires);
  json["then"] = TargetJson(target.then);
  return json;
}

std::string Describe(const JobTarget& target) {
  if (target.expires == 0) return plan::Describe(target.target);
  return fmt::format("{} until {}, then {}", plan::Describe(target.target),
                     TimeText(target.expires), plan::Describe(target.then));
}

std::optional<plan::Target> TargetOfSlug(std::string_view slug) {
  if (slug == plan::Slug(plan::Target())) return plan::Target();
  for (const KindName& kind : kKinds) {
    plan::Target target{.kind = kind.kind};
    if (!TakesValue(kind.kind)) {
      if (plan::Slug(target) == slug) return target;
      continue;
    }
    if (kind.slug_begin.empty() || !slug.starts_with(kind.slug_begin) ||
        !slug.ends_with(kind.slug_end)) {
      continue;
    }
    std::string_view number = slug.substr(kind.slug_begin.size());
    if (number.size() < kind.slug_end.size()) continue;
    number.remove_suffix(kind.slug_end.size());
    const auto value = ParseNumber<double>(number);
    const NumberRange range = plan::ValueRange(kind.kind);
    if (value && *value >= range.least && *value <= range.most) {
      target.value = *value;
      return target;
    }
  }
  return std::nullopt;
}

}  // namespace perseus::job_planning
