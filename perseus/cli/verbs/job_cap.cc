#include "perseus/cli/verbs/job_cap.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/json_text.h"
#include "perseus/base/units.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/cap_flags.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/planning/power_share/power_share.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

// A share is this much above the frontier, so that the rounded target is not below it: a target
// just below the least power has no plan.
constexpr double kRoom = 1 + 2e-5;

// A job as the server knows it. Powers are those of the whole job.
struct Capped {
  std::string key;
  int pipelines = 1;
  double baseline_s = 0;
  // Measured power divided by planned power, for the plan in force. Nullopt if it is unknown.
  std::optional<double> measured;
  double now_w = 0;  // Measured, or else planned.
  bool has_cap = false;
  power_share::Job frontier;

  // The power that nodes measure will be the planned power times this factor. Medians of a few
  // dozen steps are up to 0.5 % off. So a job gets more watts than planned only for the part of the
  // difference above 1 %. It gets fewer watts for the whole difference, to be safe.
  double factor() const {
    constexpr double kGuard = 0.01;
    return std::max(measured.value_or(1), std::min(1.0, measured.value_or(1) + kGuard));
  }
};

std::string CapPath(const std::string& job, const char* rest = "") {
  return fmt::format("/v1/jobs/{}{}", http::PercentEncoded(job), rest);
}

double PowerOf(const ordered_json& plan) {
  return plan.at("energy_j").get<double>() / plan.at("time_s").get<double>();
}

// The power that the plan in force promises. Without a plan, that of the default clocks.
double PlannedPower(const ordered_json& view, const ordered_json& frontier) {
  const auto assignment = view.find("assignment");
  const double pipelines = view.at("pipelines");
  if (assignment == view.end()) return pipelines * PowerOf(frontier.at("baseline"));
  const ordered_json& shares = assignment->at("pipelines");
  double energy_j =
      shares.empty() ? pipelines * assignment->at("baseline").at("energy_j").get<double>() : 0;
  for (const ordered_json& share : shares) energy_j += share.at("energy_j").get<double>();
  return energy_j / assignment->at("time_s").get<double>();
}

// Compares the medians of measured time and energy with the plan.
std::optional<double> MeasuredOf(const ordered_json& view) {
  const ordered_json promise =
      view.value("measured", ordered_json::object()).value("promise", ordered_json::object());
  const auto power = [&promise](const char* energy_j, const char* time_s) {
    return promise.value(energy_j, 0.0) / promise.value(time_s, 0.0);
  };
  const double measured = power("measured_j", "measured_s") / power("promised_j", "promised_s");
  return measured > 0 && std::isfinite(measured) ? std::optional(measured) : std::nullopt;
}

Result<Capped> ReadJob(ServerClient& server, const std::string& name, std::string& id) {
  PERSEUS_ASSIGN_OR_RETURN(const auto view, server.Get(CapPath(name)));
  id = view.at("id");
  if (view.at("status") == "ended") return Fail("job {} has ended (leave it out)", name);
  if (view.at("profile_version") == 0) {
    return Fail(
        "job {} has no profile, so its power is unknown (measure it with perseus tune, or leave "
        "the job out)",
        name);
  }
  const auto frontier = server.Get(CapPath(name, "/frontier"));
  if (!frontier) return Fail(frontier, "job " + name);
  Capped job;
  job.key = view.at("key");
  job.pipelines = view.at("pipelines");
  job.baseline_s = frontier->at("baseline").at("time_s");
  job.measured = MeasuredOf(view);
  job.now_w = PlannedPower(view, *frontier) * job.measured.value_or(1);
  job.has_cap = view.at("target").at("kind") == "power_cap";
  job.frontier.weight =
      job.pipelines * view.at("pp_ranks").get<double>() * view.at("tensor_parallel").get<double>();
  for (const ordered_json& point : frontier->at("points")) {
    job.frontier.points.push_back(
        {point.at("time_s"), job.pipelines * PowerOf(point) * job.factor() * kRoom});
  }
  return job;
}

Result<std::vector<Capped>> ReadCapped(ServerClient& server,
                                       const std::vector<std::string>& names) {
  std::vector<Capped> jobs;
  std::map<std::string, std::string> name_of;  // By id.
  for (const std::string& name : names) {
    std::string id;
    PERSEUS_ASSIGN_OR_RETURN(auto job, ReadJob(server, name, id));
    if (const auto [other, is_new] = name_of.emplace(id, name); !is_new) {
      return Fail("{} and {} are the same job (name it once)", other->second, name);
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// Rounds down to six digits, so that targets are easy to read. kRoom is for the rounding.
double RoundedDown(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 5);
  const double rounded = std::stod(fmt::format("{:.6g}", std::floor(value / unit) * unit));
  return rounded <= value ? rounded : rounded - unit;
}

std::string PowerText(double power_w) {
  if (power_w < 1e5) return FormatQuantity(power_w, "W");
  return power_w < 1e8 ? FormatQuantity(power_w / 1e3, "kW") : FormatQuantity(power_w / 1e6, "MW");
}

// What the command does and has done.
struct Caps {
  const std::vector<Capped>& jobs;
  power_share::Division division;
  // The target of each job: the planned power of one pipeline. Empty if the cap has no effect.
  std::vector<double> targets_w = {};
  std::vector<std::optional<Error>> refusals = {};  // Empty for a job that has its target.

  double gpus() const {
    double sum = 0;
    for (const Capped& job : jobs) sum += job.frontier.weight;
    return sum;
  }
  double now_w() const {
    double sum = 0;
    for (const Capped& job : jobs) sum += job.now_w;
    return sum;
  }
  // At least 0: the fastest plan may be slightly faster than the highest clocks.
  double Slowdown(std::size_t i) const {
    return std::max(0.0, division.shares[i].time_s / jobs[i].baseline_s - 1);
  }
};

// Whether the jobs draw less than the cap, and do so even at their least times. Then they keep
// their targets: a plan for a cap is as fast as it permits, which may need more energy.
bool IsWithoutEffect(const Caps& caps, double power_w) {
  return caps.division.price == 0 && caps.now_w() <= power_w &&
         std::ranges::none_of(caps.jobs, &Capped::has_cap);
}

Result<Caps> Divide(const std::vector<Capped>& jobs, double power_w) {
  std::vector<power_share::Job> frontiers;
  for (const Capped& job : jobs) frontiers.push_back(job.frontier);
  PERSEUS_ASSIGN_OR_RETURN(auto division, power_share::Divide(frontiers, power_w));
  // Without loss, the jobs share what is left, because a plan may need slightly more than its
  // bound.
  const double scale = division.price == 0 ? power_w / division.power_w : 1;
  Caps caps{.jobs = jobs, .division = std::move(division)};
  if (IsWithoutEffect(caps, power_w)) return caps;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    caps.targets_w.push_back(RoundedDown(scale * caps.division.shares[i].power_w /
                                         jobs[i].factor() / jobs[i].pipelines));
  }
  return caps;
}

std::string FormatCaps(const Caps& caps, const CapFlags& flags) {
  Table table({"job", "now", "cap", "target", "least slowdown", "measured"});
  for (std::size_t i = 0; i < caps.jobs.size(); ++i) {
    const Capped& job = caps.jobs[i];
    const power_share::Point& share = caps.division.shares[i];
    table.AddRow({job.key, PowerText(job.now_w), PowerText(share.power_w),
                  caps.targets_w.empty() ? "" : PowerText(caps.targets_w[i]),
                  FormatPercent(caps.Slowdown(i)),
                  job.measured ? FormatChange(*job.measured - 1) : ""});
  }
  std::string text = table.Format();
  if (caps.targets_w.empty()) {
    return text + fmt::format("now {} of {}: the cap changes nothing, so no target is set\n",
                              PowerText(caps.now_w()), PowerText(flags.power_w));
  }
  text += fmt::format("now {}, then {} of {}\n", PowerText(caps.now_w()),
                      PowerText(caps.division.power_w), PowerText(flags.power_w));
  text += fmt::format(
      "lost: the work of {:.4g} of {:.0f} GPUs (in every division: {:.4g} or more)\n",
      std::max(0.0, caps.division.loss), caps.gpus(), std::max(0.0, caps.division.bound));
  if (caps.division.price > 0) {
    text +=
        fmt::format("the next 10 W give back the work of {:.3g} GPUs\n", 10 * caps.division.price);
  }
  if (flags.until_s) {
    text += fmt::format("until {:%F %T %Z}, then each job has its target of before\n",
                        fmt::localtime(static_cast<std::time_t>(*flags.until_s)));
  }
  if (flags.only_shows) text += "no target is set (--dry-run)\n";
  return text;
}

ordered_json CapsJson(const Caps& caps, const CapFlags& flags) {
  auto list = ordered_json::array();
  for (std::size_t i = 0; i < caps.jobs.size(); ++i) {
    const Capped& job = caps.jobs[i];
    const power_share::Point& share = caps.division.shares[i];
    ordered_json row{{"job", job.key},
                     {"now_w", job.now_w},
                     {"cap_w", share.power_w},
                     {"slowdown_percent", 100 * caps.Slowdown(i)}};
    if (!caps.targets_w.empty()) {
      row["target"] = {{"kind", "power_cap"}, {"value", caps.targets_w[i]}};
    }
    if (job.measured) row["measured"] = *job.measured;
    if (!flags.only_shows) row["is_set"] = !caps.refusals.empty() && !caps.refusals[i];
    list.push_back(std::move(row));
  }
  return {{"cap_w", flags.power_w},
          {"power_w", caps.division.power_w},
          {"gpus", caps.gpus()},
          {"lost_gpus", caps.division.loss},
          {"least_lost_gpus", std::max(0.0, caps.division.bound)},
          {"gpus_per_kw", 1e3 * caps.division.price},
          {"jobs", std::move(list)}};
}

// Sets the targets. If the server cannot be reached, does not try the others.
void SetTargets(ServerClient& server, const CapFlags& flags, Caps& caps) {
  std::optional<Error> unreachable;
  for (std::size_t i = 0; i < caps.targets_w.size(); ++i) {
    ordered_json target{{"kind", "power_cap"}, {"value", caps.targets_w[i]}};
    if (flags.until_s) {
      target["expires_in"] =
          std::max(1.0, static_cast<double>(*flags.until_s) -
                            static_cast<double>(SinceEpoch()) / kNanosecondsPerSecond);
    }
    caps.refusals.push_back(unreachable);
    if (unreachable) continue;
    const auto set = server.Send("PUT", CapPath(caps.jobs[i].key, "/target"), JsonText(target));
    if (set) continue;
    caps.refusals.back() = set.error();
    if (set.error().kind == ErrorKind::kSystem) unreachable = set.error();
  }
}

// Says which jobs have no new target. The table has all jobs.
Result<void> CheckAllSet(const Caps& caps) {
  std::vector<std::string> names;
  std::optional<Error> first;
  for (std::size_t i = 0; i < caps.refusals.size(); ++i) {
    if (!caps.refusals[i]) continue;
    names.push_back(caps.jobs[i].key);
    if (!first) first = caps.refusals[i];
  }
  if (!first) return {};
  return tl::unexpected(first->In(
      fmt::format("{} of {} jobs have their cap, and these keep their target: {}",
                  caps.jobs.size() - names.size(), caps.jobs.size(), fmt::join(names, ", "))));
}

}  // namespace

void AddCapFlags(CLI::App& verb, CapFlags& flags) {
  const FlagAdder add(verb);
  add("jobs", flags.jobs, "JOB", "Keys or ids of the jobs")->required();
  add("--power", flags.power_w, "POWER",
      "At most this mean power of all these jobs together, such as 1500W, 250kW or 2MW", Power())
      ->required();
  add("--until", flags.until_s, "TIME",
      "Give it back at this time: 20:00 (the next one, on this machine's clock), a date such as "
      "2026-11-30T20:00 or 2026-11-30T19:00Z, or a duration such as 90m or 2h (default: until the "
      "next target)",
      LaterTime());
  verb.add_flag("--dry-run", flags.only_shows, "Show the caps, and set no target");
}

Result<void> CapJobs(const Streams& streams, ServerClient& server, const CapFlags& flags,
                     bool as_json) {
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs, ReadCapped(server, flags.jobs));
  PERSEUS_ASSIGN_OR_RETURN(auto caps, Divide(jobs, flags.power_w));
  if (!flags.only_shows) SetTargets(server, flags, caps);
  PERSEUS_RETURN_IF_ERROR(
      streams.Print(as_json ? JsonText(CapsJson(caps, flags), 2) + "\n" : FormatCaps(caps, flags)));
  return flags.only_shows ? Result<void>() : CheckAllSet(caps);
}

}  // namespace perseus::cli
