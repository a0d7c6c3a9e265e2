#include "perseus/runtime/client/clock_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::client {
namespace {

constexpr int kMostChunks = 4096;
constexpr double kMostSlowdown = 100;  // An agent accepts at most this slowdown.
// Some switches take longer than the usual latency. An early one costs energy only.
constexpr double kLeadInLatencies = 1.5;

// Lets the clock return before the optimizer, which memory limits, has ended its step.
void AddLead(ClockTable& table, const plan_file::PlannedInstruction& last, Nanoseconds latency) {
  const int first_mhz = table.order.front().frequency_mhz;
  int& last_mhz = table.order.back().frequency_mhz;
  if (last.kind != InstructionKind::kOptimizerStep || last_mhz == 0 || last_mhz >= first_mhz)
    return;
  table.lead = static_cast<Nanoseconds>(kLeadInLatencies * static_cast<double>(latency));
  table.last_duration = last.duration;
  if (table.lead < last.duration) return;
  last_mhz = first_mhz;
  table.lead = 0;
}

}  // namespace

Result<ClockTable> CompilePlan(std::string_view text, std::string_view name, int rank,
                               int pp_ranks) {
  PERSEUS_ASSIGN_OR_RETURN(const plan_file::PlanFile plan, plan_file::ParsePlan(text, name));
  if (plan.job.IsGeneralGraph()) {
    return Fail(InFile(name),
                "a plan of a general graph does not say what is forward and what backward (use the "
                "plan of a schedule)");
  }
  const auto ranks = static_cast<int>(plan.pp_ranks.size());
  if (rank < 0 || rank >= ranks) {
    return Fail(InFile(name),
                "the plan has ranks 0 to {}, and this is rank {} (plan for this job's ranks)",
                ranks - 1, rank);
  }
  if (pp_ranks > 0 && pp_ranks != ranks) {
    return Fail(InFile(name), "the plan has {} pp_ranks, and this job has {} (plan for this job)",
                ranks, pp_ranks);
  }
  ClockTable table;
  table.name = name;
  if (plan.pp_ranks[static_cast<std::size_t>(rank)].is_cut) return table;
  table.source = ClockTable::Source::kPlan;
  const plan_file::PlannedInstruction* last = nullptr;
  for (const plan_file::PlannedInstruction& instruction :
       plan.pp_ranks[static_cast<std::size_t>(rank)].instructions) {
    if (!IsComputation(instruction.kind)) continue;
    last = &instruction;
    table.order.push_back(
        {instruction.kind, instruction.microbatch, instruction.chunk, instruction.frequency_mhz});
  }
  if (table.order.empty()) {
    return Fail(InFile(name), "rank {} of the plan computes nothing (plan for this job's schedule)",
                rank);
  }
  AddLead(table, *last, plan.job.switch_latency);
  if (plan.baseline_time > 0) {
    const double slowdown =
        static_cast<double>(plan.time) / static_cast<double>(plan.baseline_time);
    table.slowdown = std::clamp(slowdown, 1.0, kMostSlowdown);
  }
  return table;
}

ClockTable CompileClocks(std::span<const protocol::KindClock> clocks, int rank) {
  ClockTable table;
  table.source = ClockTable::Source::kKinds;
  for (const protocol::KindClock& clock : clocks) {
    if (clock.pp_rank != rank || !IsComputation(clock.kind)) continue;
    if (clock.chunk < 0 || clock.chunk >= kMostChunks) continue;
    const std::size_t chunks = static_cast<std::size_t>(clock.chunk) + 1;
    if (table.kind_clocks.size() < chunks * ClockTable::kKinds) {
      table.kind_clocks.resize(chunks * ClockTable::kKinds);
    }
    table.kind_clocks[(chunks - 1) * ClockTable::kKinds + static_cast<std::size_t>(clock.kind)] =
        clock.frequency_mhz;
  }
  return table;
}

int NearestFaster(std::span<const int> sm_clocks_mhz, int frequency_mhz) {
  if (frequency_mhz == 0 || sm_clocks_mhz.empty()) return frequency_mhz;
  const auto at = std::lower_bound(sm_clocks_mhz.begin(), sm_clocks_mhz.end(), frequency_mhz);
  return at == sm_clocks_mhz.end() ? sm_clocks_mhz.back() : *at;
}

ClockPrecedence::ClockPrecedence(Handover<ClockTable>& tables) : tables_(tables) {}

ClockPrecedence::~ClockPrecedence() {
  while (waiting_ != nullptr) TakeFirstWaiting();
}

ClockPrecedence::Change ClockPrecedence::BeginStep(std::int64_t step, Nanoseconds now) {
  AdoptOwn();
  if (Held offered = Hold(tables_.Take())) AddWaiting(std::move(offered));
  while (waiting_ != nullptr && waiting_->from_step <= step) Adopt(TakeFirstWaiting());
  return Choose(step, now);
}

void ClockPrecedence::AdoptOwn() {
  Held table = Hold(own_tables_.Take());
  if (!table) return;
  temporary_.reset();
  lasting_.reset();
  own_ = std::move(table);
}

void ClockPrecedence::AddWaiting(Held table) {
  ClockTable** end = &waiting_;
  while (*end != nullptr && (*end)->from_step < table->from_step) end = &(*end)->next;
  while (*end != nullptr) {
    const Held discarded = Hold(*end);
    *end = discarded->next;
  }
  table->next = nullptr;
  *end = table.release();
}

ClockPrecedence::Held ClockPrecedence::TakeFirstWaiting() {
  Held first = Hold(waiting_);
  waiting_ = first->next;
  return first;
}

void ClockPrecedence::Adopt(Held table) {
  if (table->until_step != 0) {
    temporary_ = std::move(table);
    return;
  }
  temporary_.reset();
  lasting_ = std::move(table);
}

ClockPrecedence::Change ClockPrecedence::Choose(std::int64_t step, Nanoseconds now) {
  if (temporary_ && step >= temporary_->until_step) temporary_.reset();
  Held& assignment = temporary_ ? temporary_ : lasting_;
  const bool follows_own = !assignment || assignment->source == ClockTable::Source::kOwn;
  Held& chosen = follows_own ? own_ : assignment;
  const bool has_expired = chosen && chosen->expires != 0 && now >= chosen->expires;
  if (has_expired) chosen.reset();
  table_ = chosen.get();
  assignment_ = assignment.get();
  return has_expired ? Change::kExpired : Change::kNone;
}

}  // namespace perseus::client
