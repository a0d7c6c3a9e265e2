#include "perseus/cli/flags/emulation_input.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/simulation/emulator/event_file.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

// In the order of AllPolicies. Perseus is the last one.
constexpr std::array<std::string_view, 6> kPolicies = {
    "allmax", "zeus-global", "zeus-per-stage", "envpipe", "perseus-published", "perseus"};

// Adds the place of an event to an error.
tl::unexpected<Error> FailAt(const std::string& where, const Error& error) {
  return FailAs(error.kind, "{}: {}", where, error.message);
}

}  // namespace

std::vector<std::string> PolicyNames() { return {kPolicies.begin(), kPolicies.end()}; }

Result<Chooser> Chooser::Create(const plan::Planner& planner, const std::string& policy,
                                Nanoseconds unit) {
  const auto number = static_cast<std::size_t>(
      std::find(kPolicies.begin(), kPolicies.end(), policy) - kPolicies.begin());
  const auto policies = baselines::AllPolicies(unit);
  Chooser chooser(planner);
  chooser.name_ = policies[number]->name();
  chooser.is_ours_ = number + 1 == kPolicies.size();
  if (chooser.is_ours_) return chooser;
  PERSEUS_ASSIGN_OR_RETURN(auto offered, policies[number]->Points(planner, {}));
  chooser.offered_ = std::move(offered);
  return chooser;
}

Result<std::vector<int>> Chooser::NoSlowdown() const {
  const Nanoseconds time = planner_->baseline().time;
  if (!is_ours_) return baselines::ChooseFor(time, offered_.points, *planner_).options;
  PERSEUS_ASSIGN_OR_RETURN(auto plan, planner_->PlanFor(time));
  return std::move(plan.options);
}

Result<std::vector<int>> Chooser::Beside(Nanoseconds straggler) const {
  if (!is_ours_) return baselines::ChooseFor(straggler, offered_.points, *planner_).options;
  PERSEUS_ASSIGN_OR_RETURN(auto plan, planner_->PlanForStraggler(straggler));
  return std::move(plan.options);
}

Result<std::vector<int>> Chooser::WithinPower(double watts, int pipelines) {
  const double share_w = watts / pipelines;
  if (is_ours_) {
    if (!frontier_) {
      PERSEUS_ASSIGN_OR_RETURN(auto frontier, planner_->ComputeFrontier());
      frontier_ = std::move(frontier);
    }
    auto plan = plan::PlanForTarget(*planner_, &*frontier_,
                                    {.kind = plan::Target::Kind::kPowerCap, .value = share_w});
    if (plan) return std::move(plan->options);
    if (plan.error().kind != ErrorKind::kUnreachable) return Fail(plan);
  } else {
    for (const baselines::OperatingPoint& point : offered_.points) {
      if (point.evaluation.average_power_w() <= share_w) return point.options;
    }
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto least_w, LeastPower());
  return FailAs(ErrorKind::kUnreachable,
                "{} has no plan that meets a power cap of {} W: the {} pipelines of the job draw "
                "at least {} W (raise the cap, or run fewer pipelines)",
                name_, watts, pipelines, std::ceil(least_w * pipelines));
}

// The least power of one pipeline.
Result<double> Chooser::LeastPower() {
  if (is_ours_) {
    PERSEUS_ASSIGN_OR_RETURN(const auto plan,
                             planner_->PlanFor(frontier_->points[frontier_->least_energy].time));
    return plan.evaluation.average_power_w();
  }
  double least_w = offered_.points.front().evaluation.average_power_w();
  for (const baselines::OperatingPoint& point : offered_.points) {
    least_w = std::min(least_w, point.evaluation.average_power_w());
  }
  return least_w;
}

Result<std::vector<int>> ReadOptions(const std::string& path,
                                     const schedule::InstructionGraph& graph) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  PERSEUS_ASSIGN_OR_RETURN(const auto plan, plan_file::ParsePlan(text, path));
  return plan_file::FindOptions(plan, graph, path);
}

Result<emulator::EmulationSpec> WithEvents(const Streams& streams, emulator::EmulationSpec spec,
                                           const std::string& event_file,
                                           const schedule::InstructionGraph& graph,
                                           Chooser& chooser) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(event_file));
  PERSEUS_ASSIGN_OR_RETURN(auto events, emulator::ParseEvents(text, event_file));
  spec.disturbances = std::move(events.disturbances);
  for (const emulator::Disturbance& slow : spec.disturbances) {
    if (slow.kind == emulator::Disturbance::Kind::kSlow)
      WarnIfLikelyPercent(streams, "slowdown =", slow.value);
  }
  for (const emulator::Events::PushedPlan& pushed : events.plans) {
    const std::string path = (fs::path(event_file).parent_path() / pushed.file).string();
    auto options = ReadOptions(path, graph);
    if (!options) return FailAt(pushed.where, options.error());
    spec.changes.push_back({pushed.from, *std::move(options), pushed.where});
  }
  spec.power_caps = std::move(events.power_caps);
  for (emulator::PowerCap& cap : spec.power_caps) {
    auto options = chooser.WithinPower(cap.watts, spec.pipelines);
    if (!options) return FailAt(cap.where, options.error());
    cap.options = *std::move(options);
  }
  return spec;
}

}  // namespace perseus::cli
