#include "tests/tuning/virtual_pipeline.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/random.h"

namespace perseus {
namespace {

constexpr Nanoseconds kReadPeriod = 10'000'000;

virtual_gpu::VirtualGpuModel ModelOf(const profiler::SweepJob& job, std::size_t rank,
                                     const VirtualPipelineSpec& spec) {
  virtual_gpu::VirtualGpuModel model;
  for (const int mhz : job.clocks_mhz[rank]) {
    model.sm_clocks.mhz[static_cast<std::size_t>(model.sm_clocks.count++)] = mhz;
  }
  model.blocking_power_w = job.model.blocking_power_w;
  model.counter_period = spec.counter_period;
  model.default_power_limit_mw = static_cast<int>(spec.power_limit_w * 1000);
  model.power_limit_wander = spec.power_limit_wander;
  model.time_noise = spec.noise;
  model.power_noise = spec.noise;
  return model;
}

}  // namespace

VirtualPipeline::VirtualPipeline(const profiler::SweepJob& job,
                                 const std::vector<profile::Profile>& truths,
                                 const VirtualPipelineSpec& spec,
                                 std::filesystem::path job_directory)
    : job_directory_(std::move(job_directory)), assignment_(job_directory_) {
  std::filesystem::create_directory(job_directory_ / "ranks");
  SplitMix64 random{spec.seed};
  const std::size_t pp_ranks = job.schedule.pp_ranks.size();
  for (std::size_t rank_number = 0; rank_number < truths.size() * pp_ranks; ++rank_number) {
    const std::size_t i = rank_number % pp_ranks;
    const auto number = static_cast<int>(i);
    const profile::Profile& truth = truths[rank_number / pp_ranks];
    const protocol::RankId name{static_cast<int>(rank_number / pp_ranks), number, 0};
    ranks_.push_back({.name = name,
                      .work = trainer::MakeRankWork(job.schedule, number, truth, job.model).value(),
                      .gpu = virtual_gpu::VirtualGpu(ModelOf(job, i, spec), random(), 0),
                      .step = {}});
    Rank& rank = ranks_.back();
    rank.gpu.SetRest(virtual_gpu::Rest::kBlocking, 0);
    rank.next_read = static_cast<Nanoseconds>(random() % static_cast<std::uint64_t>(kReadPeriod));
    protocol::RankHeader header;
    header.name = name;
    header.host = "here";
    header.pid = 1;
    header.may_set_clocks = true;
    header.sm_clocks_mhz = job.clocks_mhz[i];
    Append(name, header);
  }
}

void VirtualPipeline::SetPowerLimit(double power_limit_w) {
  const auto limit_mw = static_cast<int>(power_limit_w * 1000);
  for (Rank& rank : ranks_) rank.gpu.SetPowerLimit(device::Setting{limit_mw, limit_mw}, now_);
}

void VirtualPipeline::Throttle(int dp_rank, int pp_rank, std::optional<int> clock_mhz) {
  for (Rank& rank : ranks_) {
    if (rank.name == protocol::RankId{dp_rank, pp_rank, 0}) rank.gpu.SetThrottle(clock_mhz, now_);
  }
}

void VirtualPipeline::RunStep() {
  const protocol::Assignment assignment = assignment_.At(next_step_);
  for (Rank& rank : ranks_) {
    rank.next = 0;
    rank.step = {};
    rank.step.step = next_step_;
    rank.step.assignment_version = assignment.version;
    rank.step.on_plan = true;
    rank.step.begin = now_;
  }
  std::map<int, Arrivals> arrivals;  // By dp_rank.
  for (bool ran = true; ran;) {
    ran = false;
    for (Rank& rank : ranks_) {
      Arrivals& own = arrivals[rank.name.dp_rank];
      while (CanRun(rank, own)) {
        RunNext(rank, assignment, own);
        ran = true;
      }
    }
  }
  const Nanoseconds began = now_;
  for (const Rank& rank : ranks_) now_ = std::max(now_, rank.gpu.at());
  for (Rank& rank : ranks_) {
    AdvanceTo(rank, now_);
    rank.step.end = now_;
    Append(rank.name, rank.step);
  }
  step_times_s_.push_back(ToSeconds(now_ - began));
  ++next_step_;
}

bool VirtualPipeline::CanRun(const Rank& rank, const Arrivals& arrivals) const {
  if (rank.next == rank.work.size()) return false;
  const std::optional<trainer::Tensor>& input = rank.work[rank.next].input;
  return !input || arrivals.contains(*input);
}

void VirtualPipeline::RunNext(Rank& rank, const protocol::Assignment& assignment,
                              Arrivals& arrivals) {
  const trainer::RankInstruction& instruction = rank.work[rank.next];
  protocol::RanStep& step = rank.step;
  const int mhz = ClockOf(rank, instruction, assignment);
  if (mhz != rank.clock_mhz) {
    const Nanoseconds now = rank.gpu.at();
    rank.gpu.RequestLock(mhz == 0 ? std::optional<device::Setting>() : device::Setting{mhz, mhz},
                         now);
    rank.clock_mhz = mhz;
    step.clocks.push_back({now - step.begin, now - step.begin, mhz, 0});
  }
  if (instruction.input) AdvanceTo(rank, arrivals.at(*instruction.input));
  const Nanoseconds begin = rank.gpu.at();
  rank.gpu.Begin(instruction.table, begin);
  AdvanceTo(rank, rank.gpu.FinishTime());
  const Nanoseconds end = rank.gpu.at();
  if (instruction.output) arrivals[instruction.output->tensor] = end;
  step.instructions.push_back({instruction.kind, instruction.microbatch, instruction.chunk,
                               begin - step.begin, end - begin, mhz});
  ++rank.next;
}

int VirtualPipeline::ClockOf(const Rank& rank, const trainer::RankInstruction& instruction,
                             const protocol::Assignment& assignment) {
  if (const std::string& plan = assignment.PlanOf(rank.name.dp_rank); !plan.empty()) {
    // The instructions of the plan and of the work have the same order, which is the order of the
    // schedule.
    const plan_file::PlannedRank& planned =
        ReadPlan(plan).pp_ranks.at(static_cast<std::size_t>(rank.name.pp_rank));
    return static_cast<int>(planned.instructions.at(rank.next).frequency_mhz);
  }
  const auto clock = std::ranges::find_if(assignment.clocks, [&](const protocol::KindClock& one) {
    return one.pp_rank == rank.name.pp_rank && one.chunk == instruction.chunk &&
           one.kind == instruction.kind;
  });
  return clock == assignment.clocks.end() ? 0 : clock->frequency_mhz;
}

const plan_file::PlanFile& VirtualPipeline::ReadPlan(const std::string& path) {
  const auto found = plans_.find(path);
  if (found != plans_.end()) return found->second;
  const std::string text = ReadFile((job_directory_ / path).string()).value();
  return plans_.emplace(path, plan_file::ParsePlan(text, path).value()).first->second;
}

void VirtualPipeline::AdvanceTo(Rank& rank, Nanoseconds until) {
  for (; rank.next_read <= until; rank.next_read += kReadPeriod) {
    rank.gpu.AdvanceTo(rank.next_read);
    const virtual_gpu::VirtualGpuReading reading = rank.gpu.ReadAt(rank.next_read);
    const double energy_j = reading.published_energy_j;
    const Nanoseconds after = std::exchange(rank.last_read, rank.next_read);
    rank.is_at_power_limit = rank.is_at_power_limit || device::IsAtPowerLimit(reading.limits);
    if (rank.is_at_power_limit) {
      rank.step.is_limited = true;
      rank.step.limited_by = {"power"};
      rank.step.reached.push_back({rank.next_read - rank.step.begin, reading.sm_clock_mhz});
    }
    if (energy_j == rank.read_j) continue;
    rank.read_j = energy_j;
    rank.step.energy.push_back(
        {after - rank.step.begin, rank.next_read - rank.step.begin, energy_j});
  }
  rank.gpu.AdvanceTo(until);
}

void VirtualPipeline::Append(const protocol::RankId& name,
                             const protocol::RankRecord& record) const {
  std::ofstream(protocol::RankLogPath(job_directory_, name), std::ios::app)
      << protocol::FormatRecord(record);
}

}  // namespace perseus
