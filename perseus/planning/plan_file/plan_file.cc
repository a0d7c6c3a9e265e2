// FormatPlan and FindOptions. ParsePlan is in plan_file_reader.cc.
#include "perseus/planning/plan_file/plan_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/base/units.h"

namespace perseus::plan_file {
namespace {

using nlohmann::ordered_json;

// Formats a value on one line. A path may have bytes that are not UTF-8, which JSON forbids.
// JsonText replaces them.
std::string Dump(const ordered_json& value) { return JsonText(value); }

ordered_json FixedCost(const schedule::FixedInstructions::Cost& cost) {
  ordered_json object{{"time_s", ToSeconds(cost.time)}};
  if (cost.energy_j >= 0) object["energy_j"] = cost.energy_j;
  return object;
}

ordered_json DescribeFixed(const schedule::FixedInstructions& fixed) {
  ordered_json object = ordered_json::object();
  if (fixed.p2p > 0) object["p2p"] = ordered_json{{"time_s", ToSeconds(fixed.p2p)}};
  if (fixed.load.time > 0) object["load"] = FixedCost(fixed.load);
  if (fixed.all_reduce.time > 0) object["all_reduce"] = FixedCost(fixed.all_reduce);
  if (fixed.optimizer.time > 0) object["optimizer"] = FixedCost(fixed.optimizer);
  return object;
}

ordered_json DescribeJob(const PlanFile& plan) {
  const PlannedJob& job = plan.job;
  ordered_json object;
  if (job.IsGeneralGraph()) {
    object["graph"] = job.profile;
  } else {
    const auto& chunks = job.schedule.chunk_of_stage;
    object["profile"] = job.profile;
    object["schedule"] = job.schedule.name;
    object["pp_ranks"] = job.schedule.pp_ranks.size();
    object["microbatches"] = job.schedule.microbatches;
    object["chunks"] = 1 + *std::max_element(chunks.begin(), chunks.end());
  }
  object["pipelines"] = job.pipelines;
  object["gpus_per_stage"] = job.model.gpus_per_stage;
  object["blocking_power_w"] = job.model.blocking_power_w;
  if (job.model.has_power_of_stages) object["has_power_of_stages"] = true;
  object["switch_latency_ms"] = ToMilliseconds(job.switch_latency);
  if (!job.switch_cost.IsNone()) {
    object["switch_cost"] = {{"stall_s", ToSeconds(job.switch_cost.stall)},
                             {"energy_j", job.switch_cost.energy_j}};
  }
  object["fixed"] = DescribeFixed(job.model.fixed);
  if (!plan.other_knob_names.empty()) object["knobs"] = plan.other_knob_names;
  for (std::size_t i = 0; i < plan.knob_labels.size(); ++i) {
    if (plan.knob_labels[i].empty()) continue;
    object["knob_labels"][plan.other_knob_names[i]] = plan.knob_labels[i];
  }
  return object;
}

// Large plans have 100,000 instructions. So this does not build a JSON object for each of them.
void AppendInstruction(std::string& text, const PlannedInstruction& instruction,
                       const PlanFile& plan) {
  text += fmt::format(R"({{"kind":"{}")", Name(instruction.kind));
  if (instruction.kind == InstructionKind::kGeneric) {
    text += fmt::format(R"(,"name":{})", Dump(instruction.name));
  }
  if (instruction.stage >= 0) {
    text += fmt::format(R"(,"stage":{},"chunk":{})", instruction.stage, instruction.chunk);
  }
  if (instruction.microbatch >= 0) {
    text += fmt::format(R"(,"microbatch":{})", instruction.microbatch);
  }
  if (instruction.frequency_mhz > 0) {
    text += fmt::format(R"(,"frequency":{})", instruction.frequency_mhz);
  }
  if (!instruction.knobs.empty()) {
    ordered_json knobs;
    for (std::size_t i = 0; i < instruction.knobs.size(); ++i) {
      ordered_json& knob = knobs[plan.other_knob_names[i]];
      const bool has_texts = i < plan.knob_labels.size() && !plan.knob_labels[i].empty();
      if (has_texts) {
        knob = static_cast<int>(instruction.knobs[i]);
      } else {
        knob = instruction.knobs[i];
      }
    }
    text += fmt::format(R"(,"knobs":{})", Dump(knobs));
  }
  text +=
      fmt::format(R"(,"start_s":{},"duration_s":{},"energy_j":{}}})", ToSeconds(instruction.start),
                  ToSeconds(instruction.duration), instruction.energy_j);
}

// Returns the index of each knob of the profile in the list of knobs of the plan. The order of
// columns in a profile is free.
Result<std::vector<std::size_t>> MatchKnobs(const std::vector<std::string>& of_plan,
                                            const std::vector<std::string>& of_profile,
                                            std::string_view name) {
  for (const std::string& knob : of_plan) {
    if (std::ranges::find(of_profile, knob) != of_profile.end()) continue;
    return Fail(InFile(name),
                "the plan sets the knob {}, which the profile lacks (use a profile with it)",
                Excerpt(knob));
  }
  std::vector<std::size_t> places;
  for (const std::string& knob : of_profile) {
    const auto found = std::ranges::find(of_plan, knob);
    if (found == of_plan.end()) {
      return Fail(InFile(name),
                  "the profile has the knob {}, which the plan does not set (plan again with this "
                  "profile)",
                  Excerpt(knob));
    }
    places.push_back(static_cast<std::size_t>(found - of_plan.begin()));
  }
  return places;
}

// Returns the value of a knob of the profile that means the same as `value` of the plan. NaN: the
// profile has no such value.
double ValueInProfile(const profile::KnobLabels& of_plan, std::size_t plan_knob,
                      const profile::KnobLabels& of_profile, std::size_t knob, double value) {
  const bool has_texts = knob < of_profile.size() && !of_profile[knob].empty();
  const bool had_texts = plan_knob < of_plan.size() && !of_plan[plan_knob].empty();
  if (!has_texts && !had_texts) return value;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (has_texts != had_texts) return kNone;
  const auto found =
      std::ranges::find(of_profile[knob], profile::KnobText(of_plan, plan_knob, value));
  return found == of_profile[knob].end() ? kNone
                                         : static_cast<double>(found - of_profile[knob].begin());
}

// Returns the text without line ends and the indentation after them.
std::string WithoutLayout(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    line += text.substr(0, end);
    text.remove_prefix(std::min(text.size(), text.find_first_not_of("\n ", end)));
  }
  return line;
}

}  // namespace

// Writes one line for each instruction, so that users can read a plan and compare it with diff.
std::string FormatPlan(const PlanFile& plan, PlanText layout) {
  std::string text = "{\n";
  auto member = [&](std::string_view key, const ordered_json& value) {
    text += fmt::format("  \"{}\": {},\n", key, Dump(value));
  };
  member("format", "perseus-plan");
  member("version", 1);
  member("job", DescribeJob(plan));
  member("target", plan.target);
  member("deadline_s", ToSeconds(plan.deadline));
  member("time_s", ToSeconds(plan.time));
  member("energy_j", plan.energy_j);
  member("lower_bound_j", plan.lower_bound_j);
  member("gap", std::max(0.0, plan.energy_j / plan.lower_bound_j - 1));
  member("average_power_w", plan.energy_j / ToSeconds(plan.time));
  member("switches", plan.switches);
  member("baseline", ordered_json{{"time_s", ToSeconds(plan.baseline_time)},
                                  {"energy_j", plan.baseline_energy_j}});
  text += "  \"pp_ranks\": [";
  std::string_view before_rank = "\n";
  for (std::size_t rank = 0; rank < plan.pp_ranks.size(); ++rank) {
    text += fmt::format("{}    {{\"pp_rank\": {}, \"name\": {}, {}\"instructions\": [", before_rank,
                        rank, Dump(plan.pp_ranks[rank].name),
                        plan.pp_ranks[rank].is_cut ? "\"cut\": true, " : "");
    std::string_view before_instruction = "\n";
    for (const PlannedInstruction& instruction : plan.pp_ranks[rank].instructions) {
      text += before_instruction;
      text += "      ";
      AppendInstruction(text, instruction, plan);
      before_instruction = ",\n";
    }
    text += "\n    ]}";
    before_rank = ",\n";
  }
  text += "\n  ]\n}\n";
  return layout == PlanText::kOneLine ? WithoutLayout(text) : text;
}

Result<PlanFile> Cut(PlanFile plan, const std::set<int>& pp_ranks) {
  const auto count = std::ssize(plan.pp_ranks);
  for (const int rank : pp_ranks) {
    if (rank >= 0 && rank < count) continue;
    return Fail("the plan has no pp_rank {} (it has {} pp_ranks, numbered from 0)", rank, count);
  }
  for (int rank = 0; rank < count; ++rank) {
    if (pp_ranks.contains(rank)) continue;
    PlannedRank& cut = plan.pp_ranks[static_cast<std::size_t>(rank)];
    std::set<int> stages;
    std::erase_if(cut.instructions, [&stages](const PlannedInstruction& instruction) {
      return instruction.stage < 0 || !stages.insert(instruction.stage).second;
    });
    cut.is_cut = true;
  }
  return plan;
}

Result<std::vector<int>> FindOptions(const PlanFile& plan, const schedule::InstructionGraph& graph,
                                     std::string_view name) {
  if (plan.pp_ranks.size() != graph.pp_rank_orders.size()) {
    return Fail(
        InFile(name),
        "pp_ranks has {} pp_ranks, but the job has {} (evaluate the plan with the job that it "
        "was made for)",
        plan.pp_ranks.size(), graph.pp_rank_orders.size());
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto places,
                           MatchKnobs(plan.other_knob_names, graph.other_knob_names, name));
  std::vector<double> knobs(places.size());
  // Fixed instructions keep their options of the baseline.
  std::vector<int> options = schedule::BaselineOptions(graph);
  const std::vector<std::vector<int>> orders = PlannedOrders(graph);
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    const std::vector<PlannedInstruction>& instructions = plan.pp_ranks[rank].instructions;
    std::size_t position = 0;
    for (int instruction : orders[rank]) {
      while (position < instructions.size() && !IsPlanned(instructions[position].kind)) ++position;
      const std::string where =
          fmt::format("{}: pp_ranks[{}].instructions[{}]", name, rank, position);
      const schedule::OptionSet& set = graph.options_of(instruction);
      const schedule::InstructionNode& expected =
          graph.instructions[static_cast<std::size_t>(instruction)];
      if (position == instructions.size() || instructions[position].kind != set.kind ||
          instructions[position].microbatch != expected.microbatch ||
          instructions[position].chunk != set.chunk ||
          (set.kind == InstructionKind::kGeneric && instructions[position].name != set.name)) {
        return Fail("{}: the job has {} here (evaluate the plan with the job that it was made for)",
                    where, schedule::Describe(graph, instruction));
      }
      const PlannedInstruction& planned = instructions[position++];
      for (std::size_t i = 0; i < knobs.size(); ++i) {
        knobs[i] = ValueInProfile(plan.knob_labels, places[i], graph.knob_labels, i,
                                  planned.knobs[places[i]]);
      }
      PERSEUS_ASSIGN_OR_RETURN(const auto option,
                               FindOption(set, {planned.frequency_mhz, knobs}, where));
      options[static_cast<std::size_t>(instruction)] = option;
    }
    while (position < instructions.size() && !IsPlanned(instructions[position].kind)) ++position;
    if (position < instructions.size()) {
      return Fail(
          InFile(name),
          "pp_ranks[{}].instructions[{}]: the job has nothing more on this pp_rank (evaluate "
          "the plan with the job that it was made for)",
          rank, position);
    }
  }
  return options;
}

bool IsPlanned(InstructionKind kind) {
  return IsComputation(kind) || kind == InstructionKind::kGeneric;
}

std::vector<std::vector<int>> PlannedOrders(const schedule::InstructionGraph& graph) {
  std::vector<std::vector<int>> orders = graph.pp_rank_orders;
  for (std::vector<int>& order : orders) {
    std::erase_if(order,
                  [&](int instruction) { return !IsPlanned(graph.options_of(instruction).kind); });
  }
  return orders;
}

Result<int> FindOption(const schedule::OptionSet& set, const NamedOption& named,
                       std::string_view where) {
  int found = -1;
  int at_frequency = 0;
  const profile::Option* nearest = &set.options.front();
  for (std::size_t i = 0; i < set.options.size(); ++i) {
    const profile::Option& option = set.options[i];
    if (std::abs(option.frequency_mhz - named.frequency_mhz) <
        std::abs(nearest->frequency_mhz - named.frequency_mhz)) {
      nearest = &option;
    }
    if (option.frequency_mhz != named.frequency_mhz) continue;
    ++at_frequency;
    if (named.other_knobs.empty() || std::ranges::equal(option.other_knobs, named.other_knobs)) {
      found = static_cast<int>(i);
    }
  }
  if (at_frequency == 0) {
    return Fail(
        "{}: {} was not measured at {} MHz, the nearest measured is {} MHz (measure it at this "
        "frequency, or plan again with this profile)",
        where, set.name, named.frequency_mhz, nearest->frequency_mhz);
  }
  if (found < 0) {
    return Fail(
        "{}: {} was measured at {} MHz, but not with these other knobs (measure it with them, or "
        "plan again with this profile)",
        where, set.name, named.frequency_mhz);
  }
  if (named.other_knobs.empty() && at_frequency > 1) {
    return Fail(
        "{}: {} has {} options at {} MHz, and the plan does not say which (use a plan that names "
        "the other knobs)",
        where, set.name, at_frequency, named.frequency_mhz);
  }
  return found;
}

}  // namespace perseus::plan_file
