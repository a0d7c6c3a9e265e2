#include "perseus/planning/report/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/plan_file/trace_events.h"

namespace perseus::report {
namespace {

using plan_file::QuotedForTrace;

std::string SliceName(const schedule::OptionSet& set, int microbatch) {
  return set.kind == InstructionKind::kGeneric ? set.name
                                               : plan_file::InstructionLabel(set.kind, microbatch);
}

class TraceWriter {
 public:
  TraceWriter(const schedule::InstructionGraph& graph, double blocking_power_w)
      : graph_(graph), blocking_power_w_(blocking_power_w) {}

  void Add(const Timeline& timeline) {
    events_.NameProcess(++process_, timeline.name);
    for (std::size_t rank = 0; rank < graph_.pp_rank_names.size(); ++rank) {
      events_.NameLane(process_, static_cast<int>(rank), graph_.pp_rank_names[rank]);
    }
    for (std::size_t i = 0; i < graph_.instructions.size(); ++i) AddSlice(timeline, i);
    AddPower(timeline.evaluation, std::max(timeline.until, timeline.evaluation.time));
  }

  std::string Finish() && { return std::move(events_).Finish(); }

 private:
  void AddSlice(const Timeline& timeline, std::size_t instruction) {
    const plan::Evaluation& evaluation = timeline.evaluation;
    const schedule::OptionSet& set = graph_.options_of(static_cast<int>(instruction));
    const profile::Option& option =
        set.options[static_cast<std::size_t>(timeline.options[instruction])];
    std::string arguments;
    if (plan_file::IsPlanned(set.kind) && option.frequency_mhz > 0) {
      arguments = fmt::format(R"("frequency_mhz":{},)", option.frequency_mhz);
      for (std::size_t i = 0; i < option.other_knobs.size(); ++i) {
        const std::string value = profile::KnobText(graph_.knob_labels, i, option.other_knobs[i]);
        const bool has_texts = i < graph_.knob_labels.size() && !graph_.knob_labels[i].empty();
        arguments += fmt::format("{}:{},", QuotedForTrace(graph_.other_knob_names[i]),
                                 has_texts ? QuotedForTrace(value) : value);
      }
    }
    if (IsComputation(set.kind)) {
      arguments += fmt::format(R"("pp_rank":{},"chunk":{},)", set.pp_rank, set.chunk);
    }
    arguments += fmt::format(R"("energy_j":{},"power_w":{:.3f})",
                             evaluation.energies_j[instruction], PowerOf(evaluation, instruction));
    const schedule::InstructionNode& one = graph_.instructions[instruction];
    events_.AddSlice({.process = process_,
                      .lane = one.pp_rank,
                      .name = SliceName(set, one.microbatch),
                      .kind = set.kind,
                      .start = evaluation.starts[instruction],
                      .duration = evaluation.durations[instruction]},
                     arguments);
  }

  static double PowerOf(const plan::Evaluation& evaluation, std::size_t instruction) {
    return evaluation.energies_j[instruction] / ToSeconds(evaluation.durations[instruction]);
  }

  // The power changes when an instruction starts or ends, and is constant in between.
  void AddPower(const plan::Evaluation& evaluation, Nanoseconds until) {
    std::vector<std::pair<Nanoseconds, double>> steps;
    steps.reserve(evaluation.starts.size() * 2);
    for (std::size_t i = 0; i < evaluation.starts.size(); ++i) {
      const double above_blocking_w = PowerOf(evaluation, i) - blocking_power_w_;
      steps.emplace_back(evaluation.starts[i], above_blocking_w);
      steps.emplace_back(evaluation.starts[i] + evaluation.durations[i], -above_blocking_w);
    }
    std::sort(steps.begin(), steps.end());
    double power_w = blocking_power_w_ * static_cast<double>(graph_.pp_rank_orders.size());
    if (steps.empty() || steps.front().first > 0) AddCounter(0, power_w);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      power_w += steps[i].second;
      const bool is_last_of_its_time =
          i + 1 == steps.size() || steps[i + 1].first != steps[i].first;
      if (is_last_of_its_time && steps[i].first < until) {
        AddCounter(steps[i].first, power_w);
      }
    }
    AddCounter(until, 0);
  }

  void AddCounter(Nanoseconds time, double power_w) {
    events_.AddCounter(process_, "pipeline power", time, "W", fmt::format("{:.3f}", power_w));
  }

  const schedule::InstructionGraph& graph_;
  double blocking_power_w_;
  plan_file::TraceEvents events_;
  int process_ = 0;
};

}  // namespace

std::string FormatTrace(const schedule::InstructionGraph& graph, double blocking_power_w,
                        std::span<const Timeline> timelines) {
  TraceWriter writer(graph, blocking_power_w);
  for (const Timeline& timeline : timelines) writer.Add(timeline);
  return std::move(writer).Finish();
}

}  // namespace perseus::report
