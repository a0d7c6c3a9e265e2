#include "perseus/runtime/profiler/profiler_state.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/units.h"

namespace perseus::profiler {
namespace {

using json_file::Node;
using json_file::Throw;
using nlohmann::ordered_json;

constexpr int kVersion = 2;
constexpr int kMaxJsonDepth = 8;
constexpr int kMostParameters = 4096;
constexpr double kHuge = 1e300;
// The highest count in a file. Up to this value, a double represents every whole number.
constexpr std::int64_t kMostCount = 9'000'000'000'000'000;

// The names of the counts in the file.
constexpr std::array<std::pair<std::string_view, std::int64_t GpuMeasurements::Counts::*>, 9>
    kCounts = {{{"steps", &GpuMeasurements::Counts::steps},
                {"limited_steps", &GpuMeasurements::Counts::limited_steps},
                {"instructions", &GpuMeasurements::Counts::instructions},
                {"switching_instructions", &GpuMeasurements::Counts::switching_instructions},
                {"stalled_instructions", &GpuMeasurements::Counts::stalled_instructions},
                {"steps_held_back", &GpuMeasurements::Counts::steps_held_back},
                {"windows", &GpuMeasurements::Counts::windows},
                {"windows_left_out", &GpuMeasurements::Counts::windows_left_out},
                {"drifts", &GpuMeasurements::Counts::drifts}}};

ordered_json ToJson(const PowerFit::Sums& sums) {
  ordered_json normal = ordered_json::array();
  for (std::size_t i = 0; i < sums.normal.size; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double value = sums.normal.At(i, j);
      if (value != 0) normal.push_back({i, j, value});
    }
  }
  return {{"squares", sums.squares},
          {"log_determinant", sums.log_determinant},
          {"right", sums.right},
          {"normal", std::move(normal)}};
}

ordered_json ToJson(const ClockedKind& what, const GpuMeasurements::Record& record) {
  ordered_json json = {{"chunk", what.chunk},
                       {"kind", Name(what.kind)},
                       {"frequency_mhz", what.frequency_mhz},
                       {"parameter", record.parameter},
                       {"samples", record.samples},
                       {"mean_s", record.mean_s},
                       {"squares", record.squares},
                       {"parameter_before", record.parameter_before},
                       {"residuals", record.residuals},
                       {"residual_squares", record.residual_squares},
                       {"sums", record.sums}};
  if (record.readings > 0) {
    json["readings"] = record.readings;
    json["reached_mhz"] = record.reached_mhz;
    json["usual_mhz"] = record.usual_mhz;
  }
  return json;
}

ordered_json ToJson(const protocol::RankId& name, const KnownGpu& gpu) {
  const GpuMeasurements::State state = gpu.measurements.state();
  ordered_json counts;
  for (const auto& [key, member] : kCounts) counts[std::string(key)] = state.counts.*member;
  ordered_json records = ordered_json::array();
  for (const auto& [what, record] : state.records) records.push_back(ToJson(what, record));
  ordered_json fits = ordered_json::array();
  for (const PowerFit::Sums& sums : state.fit.sums()) fits.push_back(ToJson(sums));
  return {{"dp_rank", name.dp_rank},
          {"pp_rank", name.pp_rank},
          {"tp_rank", name.tp_rank},
          {"gpu", gpu.gpu},
          {"gpu_name", gpu.gpu_name},
          {"switch_latency_ns", state.settings.switch_latency},
          {"last_mhz", state.last_frequency_mhz},
          {"refused", state.is_refused},
          {"parameters", state.parameters},
          {"windows", state.fit.windows()},
          {"stretches", state.fit.stretches()},
          {"counts", std::move(counts)},
          {"records", std::move(records)},
          {"fits", std::move(fits)}};
}

std::pair<ClockedKind, GpuMeasurements::Record> ReadRecord(const Node& node, int parameters) {
  node.RequireObject({"chunk", "kind", "frequency_mhz", "parameter", "samples", "mean_s", "squares",
                      "parameter_before", "residuals", "residual_squares", "sums", "readings",
                      "reached_mhz", "usual_mhz"});
  ClockedKind what;
  what.chunk = node.Member("chunk").Count(0, kHighestRank, "a chunk, from 0");
  const Node kind = node.Member("kind");
  const std::string kind_name = kind.Text();
  const auto known = ParseInstructionKind(kind_name);
  if (!known) {
    Throw("{} \"{}\" is no instruction kind (expected one such as forward)", kind.path, kind_name);
  }
  what.kind = *known;
  what.frequency_mhz = node.Member("frequency_mhz").Count(0, kHighestFrequencyMhz, "MHz");
  GpuMeasurements::Record record;
  record.parameter =
      static_cast<std::size_t>(node.Member("parameter").Count(1, parameters - 1, "its number"));
  record.samples = node.Member("samples").Whole(0, kMostCount, "how many were measured");
  record.mean_s = node.Member("mean_s").Number(0, kLongestSeconds, "seconds");
  record.squares = node.Member("squares").Number(0, kHuge, "seconds squared");
  record.parameter_before = static_cast<std::size_t>(
      node.Member("parameter_before").Count(0, parameters - 1, "its number, or 0"));
  record.residuals = node.Member("residuals").Whole(0, kMostCount, "a number of steps");
  record.residual_squares = node.Member("residual_squares").Number(0, kHuge, "seconds squared");
  const Node sums = node.Member("sums");
  if (sums.ListSize() != record.sums.size()) {
    Throw("{} does not have {} numbers (measure again)", sums.path, record.sums.size());
  }
  for (std::size_t i = 0; i < record.sums.size(); ++i) {
    record.sums[i] = sums[i].Number(0, kHuge, "a sum of deviations");
  }
  if (node.Has("readings")) {
    record.readings = node.Member("readings").Whole(1, kMostCount, "how many were read");
    record.reached_mhz = node.Member("reached_mhz").Count(1, kHighestFrequencyMhz, "MHz");
    // Earlier versions did not write it.
    record.usual_mhz = node.Has("usual_mhz")
                           ? node.Member("usual_mhz").Number(1, kHighestFrequencyMhz, "MHz")
                           : record.reached_mhz;
  }
  return {what, record};
}

PowerFit::Sums ReadSums(const Node& node, std::size_t parameters) {
  node.RequireObject({"squares", "log_determinant", "right", "normal"});
  PowerFit::Sums sums;
  sums.squares = node.Member("squares").Number(0, kHuge, "a sum of squares");
  sums.log_determinant = node.Member("log_determinant").Number(-kHuge, kHuge, "a logarithm");
  const Node right = node.Member("right");
  if (right.ListSize() > parameters) {
    Throw("{} has more than {} numbers (measure again)", right.path, parameters);
  }
  for (std::size_t i = 0; i < right.ListSize(); ++i) {
    sums.right.push_back(right[i].Number(-kHuge, kHuge, "a sum of products"));
  }
  sums.normal.GrowTo(sums.right.size());
  const Node normal = node.Member("normal");
  const int last = static_cast<int>(sums.right.size()) - 1;
  for (std::size_t k = 0; k < normal.ListSize(); ++k) {
    const Node entry = normal[k];
    if (entry.ListSize() != 3) Throw("{} is not [row, column, value]", entry.path);
    const auto i = static_cast<std::size_t>(entry[0].Count(0, last, "a row"));
    const auto j = static_cast<std::size_t>(entry[1].Count(0, static_cast<int>(i), "a column"));
    const double least = i == j ? 0 : -kHuge;
    sums.normal.At(i, j) = sums.normal.At(j, i) =
        entry[2].Number(least, kHuge, "a sum of products");
  }
  return sums;
}

GpuMeasurements ReadMeasurements(const Node& node) {
  GpuMeasurements::State state;
  state.settings.switch_latency =
      node.Member("switch_latency_ns").Whole(0, 1'000'000'000'000, "nanoseconds");
  state.last_frequency_mhz = node.Member("last_mhz").Count(0, kHighestFrequencyMhz, "MHz");
  state.is_refused = node.Member("refused").Flag();
  const int parameters = node.Member("parameters").Count(1, kMostParameters, "how many powers");
  state.parameters = static_cast<std::size_t>(parameters);
  const Node counts = node.Member("counts");
  std::vector<std::string_view> names;
  for (const auto& [key, member] : kCounts) names.push_back(key);
  counts.RequireObject(names);
  for (const auto& [key, member] : kCounts) {
    state.counts.*member = counts.Member(key).Whole(0, kMostCount, "a count");
  }
  const Node records = node.Member("records");
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < records.ListSize(); ++i) {
    const auto [what, record] = ReadRecord(records[i], parameters);
    if (!taken.insert(record.parameter).second || !state.records.emplace(what, record).second) {
      Throw("{} is given twice (remove one)", records[i].path);
    }
  }
  const Node fits = node.Member("fits");
  std::array<PowerFit::Sums, PowerFit::kRunDeviations.size()> sums;
  if (fits.ListSize() != sums.size()) {
    Throw("{} does not have {} entries (measure again)", fits.path, sums.size());
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = ReadSums(fits[i], state.parameters);
    if (sums[i].right.size() != sums[0].right.size()) {
      Throw("{} has another size than the first entry (measure again)", fits[i].path);
    }
  }
  // Earlier versions did not write it.
  const double stretches =
      node.Has("stretches") ? node.Member("stretches").Number(0, kMostCount, "a count") : 0;
  state.fit = PowerFit::Restore(std::move(sums),
                                node.Member("windows").Number(0, kMostCount, "a count"), stretches);
  return GpuMeasurements::Restore(std::move(state));
}

std::pair<protocol::RankId, KnownGpu> ReadGpu(const Node& node) {
  node.RequireObject({"dp_rank", "pp_rank", "tp_rank", "gpu", "gpu_name", "switch_latency_ns",
                      "last_mhz", "refused", "parameters", "windows", "stretches", "counts",
                      "records", "fits"});
  const protocol::RankId name = protocol::ReadRankId(node);
  return {name, KnownGpu{node.Member("gpu").Text(), node.Member("gpu_name").Text(),
                         ReadMeasurements(node)}};
}

constexpr std::array<std::pair<std::string_view, double InstructionNoise::Sums::*>, 5> kNoiseSums =
    {{{"own", &InstructionNoise::Sums::own},
      {"all", &InstructionNoise::Sums::all},
      {"squares", &InstructionNoise::Sums::squares},
      {"own_common", &InstructionNoise::Sums::own_common},
      {"all_common", &InstructionNoise::Sums::all_common}}};

ordered_json ToJson(const InstructionNoise::State& noise) {
  ordered_json groups = ordered_json::array();
  for (const InstructionNoise::Sums& sums : noise.groups) {
    ordered_json& group = groups.emplace_back();
    for (const auto& [key, member] : kNoiseSums) group[std::string(key)] = sums.*member;
  }
  return {{"blocks", noise.blocks}, {"groups", std::move(groups)}};
}

InstructionNoise ReadNoise(const Node& node) {
  node.RequireObject({"blocks", "groups"});
  InstructionNoise::State noise;
  noise.blocks = node.Member("blocks").Whole(0, kMostCount, "a count");
  const Node groups = node.Member("groups");
  if (groups.ListSize() != noise.groups.size()) {
    Throw("{} does not have {} entries (measure again)", groups.path, noise.groups.size());
  }
  std::vector<std::string_view> names;
  for (const auto& [key, member] : kNoiseSums) names.push_back(key);
  for (std::size_t g = 0; g < noise.groups.size(); ++g) {
    groups[g].RequireObject(names);
    for (const auto& [key, member] : kNoiseSums) {
      // The covariances in `own` may be negative.
      const double least = member == &InstructionNoise::Sums::own ? -kHuge : 0;
      noise.groups[g].*member = groups[g].Member(key).Number(least, kHuge, "seconds squared");
    }
  }
  return InstructionNoise::Restore(noise);
}

ProfilerState ReadState(const Node& file) {
  file.RequireObject({"perseus_profiler", "job", "spent", "noise", "further_noise", "gpus"});
  const int version =
      file.Member("perseus_profiler", "is it a profiler's state file?").Count(0, 1'000'000, "2");
  if (version != kVersion) {
    Throw("perseus_profiler is {} (this version reads {}; remove the file to measure again)",
          version, kVersion);
  }
  ProfilerState state;
  state.job = file.Member("job").Text();
  const Node spent = file.Member("spent");
  spent.RequireObject({"steps", "seconds"});
  state.spent.steps = spent.Member("steps").Count(0, 1'000'000'000, "a number of steps");
  state.spent.seconds = spent.Member("seconds").Number(0, 1e12, "seconds");
  state.noise = ReadNoise(file.Member("noise"));
  // Earlier versions did not write it.
  if (file.Has("further_noise")) {
    state.further_noise = file.Member("further_noise").Number(0, 1, "a relative deviation");
  }
  const Node gpus = file.Member("gpus");
  for (std::size_t i = 0; i < gpus.ListSize(); ++i) {
    if (!state.gpus.insert(ReadGpu(gpus[i])).second) {
      Throw("{} has a rank that is given twice (remove one)", gpus[i].path);
    }
  }
  return state;
}

}  // namespace

std::string FormatProfilerState(const ProfilerState& state) {
  ordered_json gpus = ordered_json::array();
  for (const auto& [name, gpu] : state.gpus) gpus.push_back(ToJson(name, gpu));
  const ordered_json file = {
      {"perseus_profiler", kVersion},
      {"job", state.job},
      {"spent", {{"steps", state.spent.steps}, {"seconds", state.spent.seconds}}},
      {"noise", ToJson(state.noise.state())},
      {"further_noise", state.further_noise},
      {"gpus", std::move(gpus)}};
  return JsonText(file) + '\n';
}

Result<ProfilerState> ParseProfilerState(std::string_view text, std::string_view name) {
  return json_file::Read(text, name, kMaxJsonDepth,
                         [](const Node& file) { return ReadState(file); });
}

Result<void> CheckSameJob(const ProfilerState& state, std::string_view job, std::string_view name) {
  if (state.job == job) return {};
  return Fail(InFile(name),
              "the measurements are of the job \"{}\", but this job is \"{}\" (remove the file to "
              "measure again)",
              state.job, job);
}

Result<void> CheckSameGpu(const ProfilerState& state, const protocol::RankHeader& header,
                          std::string_view name) {
  const auto known = state.gpus.find(header.name);
  if (known == state.gpus.end() || known->second.gpu_name == header.gpu_name) return {};
  return Fail(InFile(name),
              "{} was measured on \"{}\" but runs on \"{}\" now (remove the file to measure again)",
              Name(header.name), known->second.gpu_name, header.gpu_name);
}

}  // namespace perseus::profiler
