// Is a searched schedule ever worse than the best generated one in the same memory? Searches and
// plans every cell: profile, microbatches, time of p2p, switch latency, limit of clock changes. In
// each cell, the generated schedules that the profile can run get plans of their own, with the same
// effort. The best plan of those that fit a memory is the floor of the row of this memory.
//
//   schedule_floor RESULTS.csv [NAME=VALUE[,VALUE...]...]
//
//   schedule_floor floor.csv microbatches=12,24 profile=gpt3-175b_a100-sxm
//   schedule_floor floor.csv changes=none latency_ms=0 p2p_ms=0
//
// NAME is profile, microbatches, p2p_ms, latency_ms or changes. Cells without such a value are left
// out. Rows are appended to RESULTS.csv, and a cell that is already there is not computed again. So
// the same command continues an interrupted run. Then prints all rows of the file, by profile and
// memory. Exits with 1 if a row is below its floor.
//
// The memories are +0, +1, +2 and +(R - 1) microbatches for each of R pp_ranks, and "all":
// no limit. Twice the warm-up of 1F1B needs +(R - 1).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measured_job.h"
#include "perseus/base/file.h"
#include "perseus/planning/schedule/in_flight.h"
#include "perseus/planning/schedule/warmup.h"
#include "perseus/planning/schedule_search/tradeoff.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus {
namespace {

using Kind = InstructionKind;
using schedule_search::PlannedCandidate;
using schedule_search::SearchJob;
using schedule_search::Tradeoff;

constexpr int kMicrobatches[] = {12, 24, 48, 96};
constexpr int kP2pMs[] = {0, 2};
constexpr int kLatencyMs[] = {0, 10};
constexpr std::optional<int> kChanges[] = {std::nullopt, 8, 2};

struct FloorProfile {
  std::string name;
  double blocking_power_w = 0;
  Result<profile::Profile> profile = Fail("not read");
  std::vector<std::string> generators;  // What it can run, besides deeper warm-ups.
  schedule_search::Placement placement = schedule_search::Placement::kLoop;
};

FloorProfile Synthetic(std::string name, synthetic::SyntheticProfileSpec spec,
                       std::vector<std::string> generators) {
  const bool is_v = spec.placement == synthetic::ChunkPlacement::kV;
  return {.name = std::move(name),
          .blocking_power_w = synthetic::FindGpuModel(spec.gpu)->blocking_power_w,
          .profile = synthetic::SynthesizeProfile(spec),
          .generators = std::move(generators),
          .placement = is_v ? schedule_search::Placement::kV : schedule_search::Placement::kLoop};
}

std::vector<FloorProfile> Profiles() {
  const std::vector<Kind> both = {Kind::kForward, Kind::kBackward, Kind::kBackwardInput,
                                  Kind::kBackwardWeight};
  const std::vector<Kind> split = {Kind::kForward, Kind::kBackwardInput, Kind::kBackwardWeight};
  std::vector<FloorProfile> profiles;
  for (const MeasuredJob& measured : kMeasuredJobs) {
    const auto text = ReadFile(ProfilePath(measured));
    if (!text) {
      fmt::print("{} is absent: skipped\n", ProfilePath(measured).string());
      continue;
    }
    profiles.push_back({.name = std::string(measured.name),
                        .blocking_power_w = measured.blocking_power_w,
                        .profile = profile::ParseProfile(*text, ProfilePath(measured).string()),
                        .generators = {"1f1b", "gpipe"}});
  }
  const auto v = synthetic::ChunkPlacement::kV;
  profiles.push_back(Synthetic("a100", {.stages = 4}, {"1f1b", "gpipe"}));
  profiles.push_back(
      Synthetic("a40-uneven", {.gpu = "a40", .imbalance = 0.2, .seed = 2}, {"1f1b", "gpipe"}));
  profiles.push_back(Synthetic("a100-split", {.stages = 4, .kinds = both, .imbalance = 0.1},
                               {"1f1b", "gpipe", "zb-h1"}));
  profiles.push_back(Synthetic("a100-chunks", {.stages = 4, .chunks = 2, .kinds = both, .seed = 3},
                               {"interleaved-1f1b", "interleaved-zb"}));
  profiles.push_back(
      Synthetic("a40-v-split",
                {.gpu = "a40", .stages = 4, .chunks = 2, .placement = v, .kinds = split, .seed = 4},
                {"zb-v"}));
  profiles.push_back(Synthetic("a100-v",
                               {.stages = 4, .chunks = 2, .placement = v, .kinds = both, .seed = 5},
                               {"zb-v", "dualpipe-v"}));
  return profiles;
}

struct Cell {
  const FloorProfile* profile = nullptr;
  int microbatches = 0;
  int p2p_ms = 0;
  int latency_ms = 0;
  std::optional<int> changes;

  std::map<std::string, std::string> Values() const {
    return {{"profile", profile->name},
            {"microbatches", fmt::format("{}", microbatches)},
            {"p2p_ms", fmt::format("{}", p2p_ms)},
            {"latency_ms", fmt::format("{}", latency_ms)},
            {"changes", changes ? fmt::format("{}", *changes) : "none"}};
  }
  // The first columns of its rows.
  std::string Key() const {
    return fmt::format("{},{},{},{},{}", profile->name, microbatches, p2p_ms, latency_ms,
                       Values()["changes"]);
  }
  SearchJob Job() const {
    const profile::Profile& measured = *profile->profile;
    SearchJob job{.profile = measured,
                  .model = {},
                  .execution = {.blocking_power_w = profile->blocking_power_w,
                                .switch_latency = latency_ms * kMillisecond},
                  .pp_ranks = measured.stages(),
                  .microbatches = microbatches,
                  .changes = {.most_changes = changes},
                  .placement = profile->placement};
    job.model.blocking_power_w = profile->blocking_power_w;
    job.model.fixed.p2p = p2p_ms * kMillisecond;
    return job;
  }
};

constexpr std::string_view kHeader =
    "profile,microbatches,p2p_ms,latency_ms,changes,memory,further_microbatches,reference_j,"
    "searched_j,floor_j,floor_schedule\n";

// A generated schedule. Its plan is made when it is first needed.
struct Generated {
  schedule::Schedule schedule;
  std::vector<std::int64_t> in_flight;
  double relaxed_energy_j = 0;  // No plan for it has less.
  std::optional<double> planned_j = {};
};

// All generated schedules that the profile can run: those with a name, and 1F1B with more warm-up,
// the same on all pp_ranks but the last one, or twice as deep.
std::vector<schedule::Schedule> GeneratedFor(const Cell& cell) {
  std::vector<schedule::Schedule> generated;
  const profile::Profile& profile = *cell.profile->profile;
  const int ranks = profile.stages();
  const auto add = [&](Result<schedule::Schedule> schedule, std::string name) {
    if (!schedule) return;  // The sizes do not permit it, as with interleaved-1f1b.
    schedule->name = std::move(name);
    generated.push_back(*std::move(schedule));
  };
  for (const std::string& name : cell.profile->generators) {
    add(schedule::GenerateSchedule({.name = name,
                                    .pp_ranks = ranks,
                                    .microbatches = cell.microbatches,
                                    .chunks = profile.chunks()}),
        name);
  }
  if (profile.chunks() > 1) return generated;
  for (int more = 1; more < ranks; ++more) {
    std::vector<int> even;
    std::vector<int> per_hop;
    for (int later = ranks - 1; later >= 0; --later) {
      even.push_back(std::min(cell.microbatches, 1 + later + (later == 0 ? 0 : more)));
      per_hop.push_back(std::min(cell.microbatches, 1 + later + std::min(more, later)));
    }
    add(schedule::GenerateWarmupSchedule(cell.microbatches, even), fmt::format("1f1b+{}", more));
    add(schedule::GenerateWarmupSchedule(cell.microbatches, per_hop),
        fmt::format("1f1b+{}/hop", more));
  }
  return generated;
}

// Those that are as fast as the reference, best relaxed energy first.
Result<std::vector<Generated>> FastGenerated(const Cell& cell, const SearchJob& job,
                                             Nanoseconds deadline) {
  std::vector<Generated> fast;
  for (schedule::Schedule& schedule : GeneratedFor(cell)) {
    PERSEUS_ASSIGN_OR_RETURN(auto graph,
                             schedule::BuildInstructionGraph(schedule, job.profile, job.model));
    PERSEUS_ASSIGN_OR_RETURN(const auto planner,
                             plan::Planner::Create(std::move(graph), job.execution));
    if (planner.least_time() > deadline) continue;
    PERSEUS_ASSIGN_OR_RETURN(const double relaxed_j, planner.BoundFor(deadline));
    std::vector<std::int64_t> in_flight = schedule::PeakInFlight(schedule);
    fast.push_back({std::move(schedule), std::move(in_flight), relaxed_j});
  }
  std::ranges::stable_sort(fast, {}, &Generated::relaxed_energy_j);
  return fast;
}

struct Floor {
  double energy_j = 0;
  std::string schedule = "none";
};

// The best plan of those that fit. Exact, although not all get a plan: one whose relaxed energy is
// above the best plan so far has no better plan.
Result<Floor> FloorIn(const std::vector<std::int64_t>& memory, const SearchJob& job,
                      const schedule_search::Reference& reference, std::vector<Generated>& fast) {
  Floor floor{.energy_j = reference.energy_j};
  for (Generated& generated : fast) {
    if (generated.relaxed_energy_j >= floor.energy_j) break;
    if (!std::ranges::equal(generated.in_flight, memory, std::ranges::less_equal())) continue;
    if (!generated.planned_j) {
      const auto planned =
          schedule_search::PlanCandidate(job, reference, {.schedule = generated.schedule},
                                         {.effort = plan::kFirstLook, .stop = {}, .finish = {}});
      if (!planned && planned.error().kind != ErrorKind::kUnreachable) return Fail(planned);
      generated.planned_j = planned ? planned->plan.evaluation.energy_j : reference.energy_j;
    }
    if (*generated.planned_j < floor.energy_j) {
      floor = {*generated.planned_j, generated.schedule.name};
    }
  }
  return floor;
}

std::int64_t FurtherMicrobatches(const Tradeoff& tradeoff, const PlannedCandidate& row) {
  const auto sum = [](const std::vector<std::int64_t>& values) {
    return std::accumulate(values.begin(), values.end(), std::int64_t{0});
  };
  return sum(row.candidate.in_flight) - sum(tradeoff.reference.in_flight);
}

Result<std::string> RowsOf(const Cell& cell) {
  const SearchJob job = cell.Job();
  schedule_search::TradeoffOptions options;
  const int all = job.microbatches * job.profile.chunks();
  options.more = {0, 1, 2, job.pp_ranks - 1, all};
  PERSEUS_ASSIGN_OR_RETURN(const auto tradeoff, schedule_search::ComputeTradeoff(job, options));
  PERSEUS_ASSIGN_OR_RETURN(auto fast, FastGenerated(cell, job, tradeoff.reference.time));
  std::string rows;
  for (const int more : options.more) {
    // A row that is left out is the one before: its further memory is of no use.
    const auto next =
        std::ranges::upper_bound(tradeoff.rows, more, {}, &schedule_search::TradeoffRow::more);
    const auto& row = *std::prev(next);
    const auto limit = schedule_search::MoreInFlight(tradeoff.reference, more).of_pp_rank;
    PERSEUS_ASSIGN_OR_RETURN(const Floor floor, FloorIn(limit, job, tradeoff.reference, fast));
    rows += fmt::format("{},{},{},{:.6f},{:.6f},{:.6f},{}\n", cell.Key(),
                        more == all ? "all" : fmt::format("+{}", more),
                        FurtherMicrobatches(tradeoff, row), tradeoff.reference.energy_j,
                        row.plan.evaluation.energy_j, floor.energy_j, floor.schedule);
  }
  return rows;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// A summary of the rows of one profile and memory.
struct Summary {
  int cells = 0;
  int below = 0;
  double least = 1;  // Savings beyond the floor, as parts of the energy at maximum frequency.
  double sum = 0;
  double most = 0;
  std::set<std::string> floors;
};

// Returns how many rows are below their floor.
int Summarize(const std::vector<std::string>& lines) {
  std::vector<std::pair<std::string, Summary>> summaries;
  int below = 0;
  for (const std::string& line : lines) {
    const std::vector<std::string> columns = Split(line, ',');
    if (columns.size() != 11 || columns.front() == "profile") continue;
    const double beyond = (std::stod(columns[9]) - std::stod(columns[8])) / std::stod(columns[7]);
    const std::string name = fmt::format("{:20} {:>4}", columns[0], columns[5]);
    auto found = std::ranges::find(summaries, name, &std::pair<std::string, Summary>::first);
    if (found == summaries.end()) found = summaries.insert(found, {name, {}});
    Summary& summary = found->second;
    ++summary.cells;
    summary.least = std::min(summary.least, beyond);
    summary.most = std::max(summary.most, beyond);
    summary.sum += beyond;
    summary.floors.insert(columns[10]);
    if (beyond >= 0) continue;
    ++summary.below;
    ++below;
    fmt::print("BELOW THE FLOOR: {}\n", line);
  }
  fmt::print("{:20} {:>4} {:>6} {:>6} {:>9} {:>9} {:>9}  {}\n", "profile", "mem", "cells", "below",
             "least %", "mean %", "most %", "floors");
  for (const auto& [name, summary] : summaries) {
    fmt::print("{} {:6} {:6} {:9.3f} {:9.3f} {:9.3f}  {}\n", name, summary.cells, summary.below,
               100 * summary.least, 100 * summary.sum / summary.cells, 100 * summary.most,
               fmt::join(summary.floors, " "));
  }
  return below;
}

std::vector<Cell> AllCells(const std::vector<FloorProfile>& profiles) {
  std::vector<Cell> cells;
  for (const int microbatches : kMicrobatches) {
    for (const FloorProfile& profile : profiles) {
      for (const std::optional<int>& changes : kChanges) {
        for (const int p2p_ms : kP2pMs) {
          for (const int latency_ms : kLatencyMs) {
            cells.push_back({&profile, microbatches, p2p_ms, latency_ms, changes});
          }
        }
      }
    }
  }
  return cells;
}

// The cells that have all chosen values.
Result<std::vector<Cell>> Select(std::vector<Cell> cells, std::span<char*> choices) {
  for (const std::string choice : choices) {
    const std::size_t equals = choice.find('=');
    const std::string name = choice.substr(0, equals);
    if (equals == std::string::npos || !cells.front().Values().contains(name)) {
      return Fail("\"{}\" is no choice of cells (such as microbatches=12,24)", choice);
    }
    const std::vector<std::string> values = Split(choice.substr(equals + 1), ',');
    std::erase_if(cells, [&](const Cell& cell) {
      return std::ranges::find(values, cell.Values()[name]) == values.end();
    });
    if (cells.empty()) return Fail("no cell has {}", choice);
  }
  return cells;
}

Result<int> Run(const std::string& path, std::span<char*> choices) {
  const std::vector<FloorProfile> profiles = Profiles();
  for (const FloorProfile& profile : profiles) {
    if (!profile.profile) return Fail("{}: {}", profile.name, profile.profile.error().message);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto cells, Select(AllCells(profiles), choices));
  std::string done(kHeader);
  if (std::filesystem::exists(path)) {
    PERSEUS_ASSIGN_OR_RETURN(done, ReadFile(path));
  }
  std::ofstream file(path, std::ios::app);
  if (!std::filesystem::file_size(path)) file << kHeader << std::flush;
  for (const Cell& cell : cells) {
    if (done.find("\n" + cell.Key() + ",") != std::string::npos) continue;
    const auto rows = RowsOf(cell);
    if (!rows) return Fail("{}: {}", cell.Key(), rows.error().message);
    file << *rows << std::flush;
    done += *rows;
    fmt::print("{}", *rows);
    std::fflush(stdout);
  }
  if (!file) return FailAs(ErrorKind::kSystem, "cannot write {}", path);
  return Summarize(Split(done, '\n'));
}

int Main(std::span<char*> arguments) {
  if (arguments.size() < 2) {
    fmt::print(stderr, "usage: schedule_floor RESULTS.csv [NAME=VALUE[,VALUE...]...]\n");
    return 2;
  }
  const auto below = Run(arguments[1], arguments.subspan(2));
  if (!below) {
    fmt::print(stderr, "{}\n", below.error().message);
    return 2;
  }
  return *below == 0 ? 0 : 1;
}

}  // namespace
}  // namespace perseus

int main(int argc, char** argv) { return perseus::Main({argv, static_cast<std::size_t>(argc)}); }
