#include "perseus/tuner/measurements.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "perseus/base/json_file.h"

namespace perseus {
namespace {

using json_file::Node;
using nlohmann::ordered_json;

// Sums over the GPUs of a stage.
struct Pooled {
  std::int64_t samples = 0;
  double time_s = 0;      // Times samples.
  double time_square = 0;  // Of (interval * samples).
  double power_weights = 0;
  double power_w = 0;  // Times weights.

  void Add(const MeasuredOption& option);
  MeasuredOption Mean(const InstructionGroup& group, int frequency_mhz) const;
};

void Pooled::Add(const MeasuredOption& option) {
  samples += option.samples;
  time_s += option.samples * option.time_s;
  // One sample has no interval of its own: that is, as wide as the time.
  const double ci_s = std::min(option.time_ci_s, option.time_s);
  time_square += option.samples * ci_s * option.samples * ci_s;
  if (!(option.power_w > 0) || !std::isfinite(option.power_ci_w) || option.power_ci_w <= 0) return;
  const double weight = 1 / (option.power_ci_w * option.power_ci_w);
  power_weights += weight;
  power_w += weight * option.power_w;
}

MeasuredOption Pooled::Mean(const InstructionGroup& group, int frequency_mhz) const {
  MeasuredOption mean;
  mean.group = group;
  mean.frequency_mhz = frequency_mhz;
  mean.samples = static_cast<int>(samples);
  mean.time_s = time_s / static_cast<double>(samples);
  mean.time_ci_s = std::sqrt(time_square) / static_cast<double>(samples);
  if (power_weights > 0) {
    mean.power_w = power_w / power_weights;
    mean.power_ci_w = 1 / std::sqrt(power_weights);
  }
  return mean;
}

}  // namespace

std::vector<DriftAlarm> Measurements::Add(const RankName& name, const RanStep& step) {
  return gpus_.try_emplace(name, settings_).first->second.Add(step);
}

std::vector<MeasuredOption> Measurements::Options() const {
  std::map<std::pair<InstructionGroup, int>, Pooled> pooled;
  for (const auto& [name, gpu] : gpus_) {
    for (const MeasuredOption& option : gpu.Options(name.rank)) {
      // 0: at the clocks of before, which nobody can ask for.
      if (option.samples == 0 || option.frequency_mhz == 0) continue;
      pooled[{option.group, option.frequency_mhz}].Add(option);
    }
  }
  std::vector<MeasuredOption> options;
  for (const auto& [key, sums] : pooled) options.push_back(sums.Mean(key.first, key.second));
  return options;
}

std::optional<double> Measurements::BlockingPower() const {
  double sum = 0;
  double weights = 0;
  for (const auto& [name, gpu] : gpus_) {
    const PowerEstimate waiting = gpu.BlockingPower();
    if (!waiting.is_identified || !(waiting.standard_error_w > 0)) continue;
    const double weight = 1 / (waiting.standard_error_w * waiting.standard_error_w);
    sum += weight * waiting.power_w;
    weights += weight;
  }
  if (weights == 0) return std::nullopt;
  return std::max(0.0, sum / weights);
}

// ---- Keeping ----

namespace {

constexpr double kMost = 1e300;
constexpr int kMostRanks = 1'000'000;
constexpr std::int64_t kMostCount = std::int64_t{1} << 53;

ordered_json ToJson(const PowerFit& fit) {
  ordered_json sums = ordered_json::array();
  for (const PowerFit::Sums& one : fit.sums()) {
    sums.push_back({{"size", one.normal.size},
                    {"normal", one.normal.values},
                    {"right", one.right},
                    {"squares", one.squares},
                    {"log_determinant", one.log_determinant}});
  }
  return {{"windows", fit.windows()}, {"sums", std::move(sums)}};
}

ordered_json ToJson(const GpuMeasurements::State& state) {
  ordered_json records = ordered_json::array();
  for (const auto& [what, record] : state.records) {
    records.push_back({what.chunk, Name(what.kind), what.frequency_mhz, record.parameter,
                       record.samples, record.mean_s, record.squares, record.temperature_sum,
                       record.steps, record.sums});
  }
  const GpuMeasurements::Counts& counts = state.counts;
  return {{"switch_latency_ns", state.settings.switch_latency},
          {"records", std::move(records)},
          {"counts",
           {counts.steps, counts.limited_steps, counts.instructions, counts.switching_instructions,
            counts.windows, counts.windows_left_out, counts.drifts}},
          {"fit", ToJson(state.fit)},
          {"parameters", state.parameters},
          {"last_frequency_mhz", state.last_frequency_mhz}};
}

[[noreturn]] void ThrowMisfit(const Node& node) {
  json_file::Throw("{} does not fit together (remove the file, and measure anew)", node.path);
}

std::vector<double> Numbers(const Node& node) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < node.ListSize(); ++i) {
    numbers.push_back(node[i].Number(-kMost, kMost, "number"));
  }
  return numbers;
}

PowerFit FitFrom(const Node& node) {
  std::array<PowerFit::Sums, PowerFit::kRunDeviations.size()> all;
  const Node listed = node.Member("sums");
  if (listed.ListSize() != all.size()) ThrowMisfit(listed);
  for (std::size_t i = 0; i < all.size(); ++i) {
    PowerFit::Sums& sums = all[i];
    sums.normal.size =
        static_cast<std::size_t>(listed[i].Member("size").Count(0, 100'000, "parameters"));
    sums.normal.values = Numbers(listed[i].Member("normal"));
    sums.right = Numbers(listed[i].Member("right"));
    sums.squares = listed[i].Member("squares").Number(-kMost, kMost, "number");
    sums.log_determinant = listed[i].Member("log_determinant").Number(-kMost, kMost, "number");
    if (sums.normal.values.size() != sums.normal.size * sums.normal.size ||
        sums.right.size() != sums.normal.size || sums.right.size() != all[0].right.size()) {
      ThrowMisfit(listed[i]);
    }
  }
  return PowerFit::Restore(std::move(all), node.Member("windows").Number(0, 1e15, "windows"));
}

void ReadRecord(const Node& node, GpuMeasurements::State& state) {
  constexpr std::size_t kFields = 10;
  if (node.ListSize() != kFields || node[9].ListSize() != 4) ThrowMisfit(node);
  const auto kind = ParseInstructionKind(node[1].Text());
  if (!kind) json_file::Throw("{}[1] is no kind of instruction", node.path);
  GpuMeasurements::Record record;
  record.parameter = static_cast<std::size_t>(node[3].Count(1, 100'000, "parameter"));
  record.samples = node[4].Whole(0, kMostCount, "samples");
  record.mean_s = node[5].Number(0, kMost, "s");
  record.squares = node[6].Number(0, kMost, "s^2");
  record.temperature_sum = node[7].Number(-kMost, kMost, "number");
  record.steps = node[8].Whole(0, kMostCount, "steps");
  for (std::size_t i = 0; i < 4; ++i) record.sums[i] = node[9][i].Number(-kMost, kMost, "number");
  const ClockedKind what{node[0].Count(0, kMostRanks, "chunk"), *kind,
                         node[2].Count(0, 1'000'000, "MHz")};
  state.records[what] = record;
}

GpuMeasurements GpuFrom(const Node& node) {
  GpuMeasurements::State state;
  state.settings.switch_latency =
      node.Member("switch_latency_ns").Whole(0, kMostCount, "nanoseconds");
  const Node records = node.Member("records");
  for (std::size_t i = 0; i < records.ListSize(); ++i) ReadRecord(records[i], state);
  const Node counts = node.Member("counts");
  std::int64_t* const fields[] = {&state.counts.steps,
                                  &state.counts.limited_steps,
                                  &state.counts.instructions,
                                  &state.counts.switching_instructions,
                                  &state.counts.windows,
                                  &state.counts.windows_left_out,
                                  &state.counts.drifts};
  if (counts.ListSize() != std::size(fields)) ThrowMisfit(counts);
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    *fields[i] = counts[i].Whole(0, kMostCount, "");
  }
  state.fit = FitFrom(node.Member("fit"));
  state.parameters =
      static_cast<std::size_t>(node.Member("parameters").Count(1, 100'000, "parameters"));
  state.last_frequency_mhz = node.Member("last_frequency_mhz").Count(0, 1'000'000, "MHz");
  for (const auto& [what, record] : state.records) {
    if (record.parameter >= state.parameters) ThrowMisfit(records);
  }
  return GpuMeasurements::Restore(std::move(state));
}

}  // namespace

std::string Measurements::Format() const {
  ordered_json gpus = ordered_json::array();
  for (const auto& [name, gpu] : gpus_) {
    gpus.push_back({{"of", {name.pipeline, name.rank, name.tensor_rank}},
                    {"state", ToJson(gpu.state())}});
  }
  return ordered_json{{"switch_latency_ns", settings_.switch_latency}, {"gpus", std::move(gpus)}}
      .dump();
}

Result<Measurements> Measurements::Parse(std::string_view text, std::string_view name) {
  constexpr int kDeepest = 9;
  return json_file::Read(text, name, kDeepest, [](const Node& file) {
    Measurements read;
    read.settings_.switch_latency =
        file.Member("switch_latency_ns").Whole(0, kMostCount, "nanoseconds");
    const Node gpus = file.Member("gpus");
    for (std::size_t i = 0; i < gpus.ListSize(); ++i) {
      const Node of = gpus[i].Member("of");
      if (of.ListSize() != 3) ThrowMisfit(of);
      const RankName rank{of[0].Count(0, kMostRanks, "pipeline"), of[1].Count(0, kMostRanks, "rank"),
                          of[2].Count(0, kMostRanks, "GPU")};
      read.gpus_.emplace(rank, GpuFrom(gpus[i].Member("state")));
    }
    return read;
  });
}

}  // namespace perseus
