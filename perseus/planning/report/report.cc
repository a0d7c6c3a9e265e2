#include "perseus/planning/report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "perseus/base/index.h"
#include "perseus/base/json_text.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/report/assets.h"

namespace perseus::report {
namespace {

using nlohmann::ordered_json;

// A chart cannot show more points. A longer frontier is reduced to about this number.
constexpr std::size_t kMostPoints = 2'000;

ordered_json DescribeJob(const Report& report) {
  const plan_file::PlannedJob& job = report.job;
  const schedule::InstructionGraph& graph = report.planner.graph();
  ordered_json object;
  object[job.IsGeneralGraph() ? "graph" : "profile"] = job.profile;
  object["schedule"] = graph.name;
  object["instructions"] = graph.instructions.size();
  if (!job.IsGeneralGraph()) object["microbatches"] = job.schedule.microbatches;
  object["pipelines"] = job.pipelines;
  object["gpus_per_stage"] = job.model.gpus_per_stage;
  object["blocking_power_w"] = report.planner.model().blocking_power_w;
  object["switch_latency_s"] = ToSeconds(report.planner.model().switch_latency);
  object["knobs"] = graph.other_knob_names;
  if (report.noise) {
    object["noise"] = {{"independent", report.noise->independent},
                       {"common", report.noise->common}};
  }
  return object;
}

// Describes the measured options, the indices of the options that are vertices of the curve, and
// the published fit.
ordered_json DescribeOptionSet(const schedule::OptionSet& set, const profile::KnobLabels& labels,
                               const profile::Curve& curve, double blocking_power_w) {
  ordered_json object{{"name", set.name},   {"kind", Name(set.kind)},   {"pp_rank", set.pp_rank},
                      {"chunk", set.chunk}, {"baseline", set.baseline}, {"hull", curve.options}};
  for (const char* member : {"frequency_mhz", "time_ns", "energy_j", "knobs"}) {
    object[member] = ordered_json::array();
  }
  for (const profile::Option& option : set.options) {
    object["frequency_mhz"].push_back(option.frequency_mhz);
    object["time_ns"].push_back(option.time);
    object["energy_j"].push_back(option.energy_j);
    ordered_json knobs = option.other_knobs;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (!labels[i].empty()) knobs[i] = profile::KnobText(labels, i, option.other_knobs[i]);
    }
    object["knobs"].push_back(std::move(knobs));
  }
  // A front with too few options has no fit.
  if (const auto fit = profile::FitExponential(set.options, blocking_power_w)) {
    object["fit"] = {{"a", fit->a}, {"b", fit->b}, {"c", fit->c}};
  }
  return object;
}

ordered_json DescribePpRank(const schedule::InstructionGraph& graph, std::size_t pp_rank) {
  ordered_json option_sets = ordered_json::array();
  ordered_json microbatches = ordered_json::array();
  for (int instruction : graph.pp_rank_orders[pp_rank]) {
    option_sets.push_back(graph.instructions[At(instruction)].option_set);
    microbatches.push_back(graph.instructions[At(instruction)].microbatch);
  }
  return {{"name", graph.pp_rank_names[pp_rank]},
          {"option_sets", std::move(option_sets)},
          {"microbatches", std::move(microbatches)}};
}

// Describes the instructions of the pp_ranks and their options.
ordered_json DescribeWork(const plan::Planner& planner) {
  const schedule::InstructionGraph& graph = planner.graph();
  ordered_json work{{"option_sets", ordered_json::array()}, {"pp_ranks", ordered_json::array()}};
  for (std::size_t i = 0; i < graph.option_sets.size(); ++i) {
    work["option_sets"].push_back(DescribeOptionSet(graph.option_sets[i], graph.knob_labels,
                                                    planner.network().curves[i],
                                                    planner.model().blocking_power_w));
  }
  for (std::size_t pp_rank = 0; pp_rank < graph.pp_rank_orders.size(); ++pp_rank) {
    work["pp_ranks"].push_back(DescribePpRank(graph, pp_rank));
  }
  return work;
}

// Describes the work of one pp_rank with a plan. Contains the gap before each instruction instead
// of its start, because most gaps are 0.
ordered_json DescribeLane(const plan::Planner& planner, const std::vector<int>& options,
                          const plan::Evaluation& evaluation, const std::vector<bool>& critical,
                          std::size_t pp_rank) {
  const schedule::InstructionGraph& graph = planner.graph();
  const plan::ExecutionModel& model = planner.model();
  ordered_json chosen = ordered_json::array();
  ordered_json gaps = ordered_json::array();
  ordered_json durations = ordered_json::array();
  ordered_json energies = ordered_json::array();
  std::string marks;
  std::map<std::string_view, double> energy_of_kind;
  Nanoseconds end = 0;
  Nanoseconds busy = 0;
  double slopes_w = 0;
  int adjustable = 0;
  for (int instruction : graph.pp_rank_orders[pp_rank]) {
    const schedule::OptionSet& set = graph.options_of(instruction);
    const Nanoseconds duration = evaluation.durations[At(instruction)];
    chosen.push_back(options[At(instruction)]);
    gaps.push_back(evaluation.starts[At(instruction)] - end);
    durations.push_back(duration);
    energies.push_back(evaluation.energies_j[At(instruction)]);
    marks += critical[At(instruction)] ? '1' : '0';
    energy_of_kind[Name(set.kind)] += evaluation.energies_j[At(instruction)];
    busy += duration;
    end = evaluation.starts[At(instruction)] + duration;
    if (set.options.size() > 1) {
      const int index = graph.instructions[At(instruction)].option_set;
      const profile::Curve& curve = planner.network().curves[At(index)];
      slopes_w += ToWatts(curve.SlopeAfter(set.options[At(options[At(instruction)])].time));
      ++adjustable;
    }
  }
  ordered_json lane{
      {"options", std::move(chosen)}, {"gaps_ns", std::move(gaps)}, {"critical", std::move(marks)}};
  // With a switch latency, an instruction may run partly at the previous clock, and a switch may
  // have a cost. Without latency and cost, an instruction has the time and energy of its option,
  // and the page uses those.
  if (!model.SwitchesAreFree()) {
    lane["durations_ns"] = std::move(durations);
    lane["energies_j"] = std::move(energies);
  }
  lane["busy_ns"] = busy;
  lane["energy_j"] = energy_of_kind;
  lane["blocking_energy_j"] = model.blocking_power_w * ToSeconds(evaluation.time - busy);
  lane["switches"] = evaluation.pp_rank_switches[pp_rank];
  lane["marginal_w"] = adjustable > 0 ? slopes_w / adjustable : 0;
  return lane;
}

ordered_json DescribeIteration(const plan::Planner& planner, const std::vector<int>& options,
                               const plan::Evaluation& evaluation) {
  const schedule::InstructionGraph& graph = planner.graph();
  ordered_json object{{"time_ns", evaluation.time},
                      {"energy_j", evaluation.energy_j},
                      {"instruction_energy_j", evaluation.instruction_energy_j},
                      {"blocking_energy_j", evaluation.blocking_energy_j},
                      {"switches", evaluation.switches},
                      {"lanes", ordered_json::array()}};
  const std::vector<bool> critical = CriticalInstructions(graph, evaluation);
  for (std::size_t pp_rank = 0; pp_rank < graph.pp_rank_orders.size(); ++pp_rank) {
    object["lanes"].push_back(DescribeLane(planner, options, evaluation, critical, pp_rank));
  }
  return object;
}

ordered_json DescribeBaseline(const plan::Planner& planner) {
  return DescribeIteration(planner, schedule::BaselineOptions(planner.graph()), planner.baseline());
}

// The marginal price of time at the deadline of a plan, in W; null if the frontier is unknown.
ordered_json MarginalPrice(const FrontierCurve& frontier, Nanoseconds deadline) {
  const auto after =
      std::ranges::upper_bound(frontier.points, deadline, {}, &plan::FrontierPoint::time);
  if (after == frontier.points.begin()) return nullptr;
  return (after - 1)->price_w;
}

ordered_json DescribePlan(const Report& report, const ReportedPlan& reported) {
  const plan::Plan& plan = reported.plan;
  ordered_json object{{"name", reported.name},
                      {"target", plan.target},
                      {"deadline_s", ToSeconds(plan.deadline)},
                      {"lower_bound_j", plan.lower_bound_j},
                      {"gap", plan.gap()},
                      {"marginal_w", MarginalPrice(report.frontier, plan.deadline)}};
  if (const auto& noisy = reported.under_noise) {
    object["noise"] = {{"slowdown", noisy->difference.slowdown},
                       {"slowdown_ci", noisy->difference.slowdown_ci},
                       {"saving", noisy->difference.saving},
                       {"saving_ci", noisy->difference.saving_ci},
                       {"most_saving", noisy->most_saving}};
  }
  object.update(DescribeIteration(report.planner, plan.options, plan.evaluation));
  return object;
}

// Keeps enough points that a chart shows no difference. Always keeps the first, the last and the
// cheapest point.
std::vector<plan::FrontierPoint> Thin(const std::vector<plan::FrontierPoint>& points) {
  if (points.size() <= kMostPoints) return points;
  const auto cheapest = std::ranges::min_element(points, {}, &plan::FrontierPoint::bound_j);
  const double step = ToSeconds(points.back().time - points.front().time) / kMostPoints;
  std::vector<plan::FrontierPoint> kept{points.front()};
  for (auto point = points.begin() + 1; point != points.end(); ++point) {
    const bool is_far = ToSeconds(point->time - kept.back().time) >= step;
    if (is_far || point == cheapest || point == points.end() - 1) kept.push_back(*point);
  }
  return kept;
}

ordered_json DescribeFrontier(const FrontierCurve& frontier) {
  ordered_json object{{"name", frontier.name}, {"breakpoints", frontier.points.size()}};
  for (const char* member : {"time_s", "energy_j", "marginal_w"}) {
    object[member] = ordered_json::array();
  }
  if (frontier.error > 0) {
    object["error"] = frontier.error;
    object["error_j"] = ordered_json::array();
  }
  for (const plan::FrontierPoint& point : Thin(frontier.points)) {
    if (frontier.error > 0) object["error_j"].push_back(point.error_j);
    object["time_s"].push_back(ToSeconds(point.time));
    object["energy_j"].push_back(point.bound_j);
    object["marginal_w"].push_back(point.price_w);
  }
  return object;
}

ordered_json OrNull(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json DescribeSwitchTradeoff(const SwitchTradeoff& tradeoff) {
  ordered_json limits = ordered_json::array();
  for (const SwitchLimit& limit : tradeoff.limits) {
    limits.push_back({{"max_switches", limit.most_switches},
                      {"saving", OrNull(limit.saving)},
                      {"most_saving", OrNull(limit.most_saving)}});
  }
  ordered_json described = {{"target", tradeoff.target},
                            {"limits", std::move(limits)},
                            {"unlimited", {{"saving", tradeoff.unlimited_saving}}}};
  if (tradeoff.limit_of_plans) described["max_switches"] = *tradeoff.limit_of_plans;
  return described;
}

ordered_json DescribeScheduleTradeoff(const ScheduleTradeoff& tradeoff) {
  ordered_json rows = ordered_json::array();
  for (const ScheduleRow& row : tradeoff.rows) {
    rows.push_back({{"name", row.name},
                    {"in_flight", row.in_flight},
                    {"memory", row.memory},
                    {"energy_j", row.energy_j},
                    {"saving", row.saving},
                    {"most_saving", OrNull(row.most_saving)}});
  }
  ordered_json timelines = ordered_json::array();
  for (const ScheduleTimeline& timeline : tradeoff.timelines) {
    // Each schedule has its own instructions, so each timeline has its own description of them.
    ordered_json object{{"name", timeline.name}};
    object.update(DescribeWork(timeline.planner));
    object["baseline"] = DescribeBaseline(timeline.planner);
    object["plan"] =
        DescribeIteration(timeline.planner, timeline.plan.options, timeline.plan.evaluation);
    timelines.push_back(std::move(object));
  }
  return {{"reference", tradeoff.reference},
          {"unit", tradeoff.unit},
          {"memory_source", tradeoff.memory_source},
          {"rows", std::move(rows)},
          {"chosen", tradeoff.chosen},
          {"timelines", std::move(timelines)},
          {"conclusion", tradeoff.conclusion}};
}

}  // namespace

SwitchLimit MakeSwitchLimit(int most_switches, const std::optional<double>& energy_j,
                            double lower_bound_j, double baseline_j) {
  SwitchLimit limit{most_switches, {}, 1 - lower_bound_j / baseline_j};
  if (energy_j) {
    limit.saving = 1 - *energy_j / baseline_j;
    // A plan that attains its bound may seem to be better than it, because sums are rounded.
    limit.most_saving = std::max(*limit.most_saving, *limit.saving);
  } else if (*limit.most_saving < 0) {
    limit.most_saving.reset();
  }
  return limit;
}

Result<std::string> FormatReportData(const Report& report) {
  const schedule::InstructionGraph& graph = report.planner.graph();
  if (graph.instructions.empty()) {
    return Fail("the job has no instructions, so the report would be empty (add instructions)");
  }
  if (report.plans.empty()) return Fail("the report has no plan (plan at least one target)");
  std::vector<const ReportedPlan*> plans;
  for (const ReportedPlan& plan : report.plans) plans.push_back(&plan);
  // The order of equally fast plans does not depend on their order in the report.
  std::ranges::sort(plans, {}, [](const ReportedPlan* plan) {
    return std::tuple(plan->plan.evaluation.time, plan->plan.deadline, plan->name != "no-slowdown",
                      plan->name);
  });

  ordered_json data{{"format", "perseus-report"}, {"version", 1}, {"job", DescribeJob(report)}};
  data.update(DescribeWork(report.planner));
  data["frontier"] = nullptr;
  if (!report.frontier.points.empty()) data["frontier"] = DescribeFrontier(report.frontier);
  data["baseline"] = DescribeBaseline(report.planner);
  data["plans"] = ordered_json::array();
  for (const ReportedPlan* plan : plans) data["plans"].push_back(DescribePlan(report, *plan));
  data["chosen"] = std::ranges::find(plans, &report.plans.at(report.chosen)) - plans.begin();
  data["overlays"] = ordered_json::array();
  for (const FrontierCurve& overlay : report.overlays) {
    data["overlays"].push_back(DescribeFrontier(overlay));
  }
  if (report.stopped_early) data["stopped_early"] = true;
  if (report.switch_tradeoff) {
    data["switch_tradeoff"] = DescribeSwitchTradeoff(*report.switch_tradeoff);
  }
  if (report.schedule_tradeoff) {
    data["schedule_tradeoff"] = DescribeScheduleTradeoff(*report.schedule_tradeoff);
  }
  if (const auto& other = report.compared_with) {
    data["compared_with"] = {
        {"schedule", other->schedule}, {"time_ns", other->time}, {"energy_j", other->energy_j}};
  }
  // A path may have bytes that are not UTF-8, which JSON forbids. JsonText replaces them.
  return JsonText(data);
}

bool HasReportPage() { return !assets::kReportPage.empty(); }

Result<std::string> FormatReportPage(const std::string& data) {
  if (!HasReportPage()) {
    return FailAs(ErrorKind::kSystem,
                  "this build has no report page (install nodejs and npm, and build again)");
  }
  const std::string_view page = assets::kReportPage;
  const std::size_t place = page.find(kDataBegin) + kDataBegin.size();
  std::string text(page.substr(0, place));
  // If the data contain no '<', they cannot end the HTML element that contains them.
  for (const char c : data) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  text += page.substr(place);
  return text;
}

std::vector<bool> CriticalInstructions(const schedule::InstructionGraph& graph,
                                       const plan::Evaluation& evaluation) {
  std::vector<std::vector<const schedule::Dependency*>> successors(graph.instructions.size());
  for (const schedule::Dependency& dependency : graph.dependencies) {
    successors[At(dependency.from)].push_back(&dependency);
  }
  std::vector<Nanoseconds> latest_starts(graph.instructions.size());
  std::vector<bool> critical(graph.instructions.size());
  // Instructions are in topological order, so the successors of each come later.
  for (int i = static_cast<int>(graph.instructions.size()) - 1; i >= 0; --i) {
    Nanoseconds latest_end = evaluation.time;
    for (const schedule::Dependency* dependency : successors[At(i)]) {
      latest_end = std::min(latest_end, latest_starts[At(dependency->to)] - dependency->delay);
    }
    latest_starts[At(i)] = latest_end - evaluation.durations[At(i)];
    critical[At(i)] = latest_starts[At(i)] == evaluation.starts[At(i)];
  }
  return critical;
}

}  // namespace perseus::report
