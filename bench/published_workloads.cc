// Do modeled profiles rank workloads as measurements do? The authors of the published method
// measured ten workloads on real GPUs (arXiv 2312.06902; reference/measured.csv). For each of them,
// this program makes the profile of the model (perseus/simulation/synthetic/model_profile.h), plans
// on it, and compares the savings with the measured ones, without and with stragglers. Prints the
// tables of docs/reproduction.md.
//
//   published_workloads          with recomputation of activations, as in the measurements
//   published_workloads kept     without recomputation
//
// Needs ../shared or the folder in PERSEUS_SHARED_DIR.
//
// Savings are those of a pipeline that is not the straggler, relative to maximum frequency. Both
// energies cover the iteration time T' of the straggler: a pipeline that ends earlier waits at the
// blocking power.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measured_job.h"
#include "perseus/base/file.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/csv_reader.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/simulation/baselines/policy.h"
#include "perseus/simulation/synthetic/model_profile.h"

namespace perseus {
namespace {

constexpr std::array kSlowdowns = {1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5};
using Savings = std::array<double, kSlowdowns.size()>;  // In %.

// Without a straggler, in %.
struct WithEnvPipe {
  double saving = 0;
  double slowdown = 0;
};

struct Workload {
  std::string gpu;  // Its name in the file.
  synthetic::ModelProfileSpec spec;
  int microbatches = 0;
  double blocking_power_w = 0;
  Savings measured = {};
  WithEnvPipe measured_envpipe;
};

struct Comparison {
  Workload workload;
  Savings modeled = {};
  WithEnvPipe modeled_envpipe;
  double imbalance = 0;        // Slowest forward / fastest forward, at maximum frequency.
  double average_power_w = 0;  // Of a GPU, with everything at maximum frequency.
  double forward_s = 0;        // Of the slowest stage.
};

template <typename T>
T NumberOf(std::string_view text) {
  T value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::vector<int> NumbersOf(std::string_view list) {
  std::vector<int> numbers;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    numbers.push_back(NumberOf<int>(list.substr(0, end)));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return numbers;
}

// The sequence lengths in the example scripts of the artifact of arXiv 2312.06902: 1,024 tokens for
// GPT-3 and Bloom, and 512 for BERT and T5, which is their own length.
int SequenceLength(std::string_view model) {
  return model.starts_with("gpt3") || model.starts_with("bloom") ? 1024 : 0;
}

Result<Workload> ReadWorkload(const profile::CsvReader& csv, bool recomputes_activations) {
  const auto fields = csv.fields();
  // model, gpu, stages, microbatch size, microbatches, boundaries, blocking power, Perseus' savings
  // and slowdown, EnvPipe's two, then Perseus' savings with stragglers.
  if (fields.size() < 11 + kSlowdowns.size() - 1) {
    return Fail("{}: {} fields are too few (is this measured.csv?)", csv.Where(), fields.size());
  }
  Workload workload;
  workload.gpu = fields[1];
  workload.spec.workload.model = fields[0];
  workload.spec.workload.microbatch_size = NumberOf<int>(fields[3]);
  workload.spec.workload.sequence_length = SequenceLength(fields[0]);
  workload.spec.stages = NumberOf<int>(fields[2]);
  workload.spec.recomputes_activations = recomputes_activations;
  workload.microbatches = NumberOf<int>(fields[4]);
  workload.blocking_power_w = NumberOf<double>(fields[6]);
  auto gpu = synthetic::FindGpuRoofline(fields[1] == "A40" ? "a40" : "a100-pcie");
  if (!gpu) return Fail(gpu);
  workload.spec.gpu = *gpu;
  if (fields[5] == "uniform_transformer") {
    workload.spec.partition = synthetic::EvenPartition::kBlocks;
  } else {
    workload.spec.boundaries = NumbersOf(fields[5]);
  }
  workload.measured[0] = NumberOf<double>(fields[7]);
  workload.measured_envpipe = {NumberOf<double>(fields[9]), NumberOf<double>(fields[10])};
  for (std::size_t i = 1; i < kSlowdowns.size(); ++i) {
    workload.measured[i] = NumberOf<double>(fields[10 + i]);
  }
  return workload;
}

Result<std::vector<Workload>> ReadWorkloads(bool recomputes_activations) {
  const auto path = SharedDirectory() / "reference" / "measured.csv";
  const auto text = ReadFile(path);
  if (!text) return Fail(text);
  profile::CsvReader csv(*text, path.string());
  std::vector<Workload> workloads;
  bool is_header = true;
  for (auto next = csv.Next();; next = csv.Next()) {
    if (!next) return Fail(next);
    if (!*next) return workloads;
    if (!is_header) {
      auto workload = ReadWorkload(csv, recomputes_activations);
      if (!workload) return Fail(workload);
      workloads.push_back(*std::move(workload));
    }
    is_header = false;
  }
}

Result<Comparison> Compare(const Workload& workload) {
  const auto profile = synthetic::SynthesizeModelProfile(workload.spec);
  if (!profile) return Fail(profile);
  const int stages = workload.spec.stages;
  const auto schedule = schedule::GenerateSchedule(
      {.name = "1f1b", .pp_ranks = stages, .microbatches = workload.microbatches, .chunks = 1});
  if (!schedule) return Fail(schedule);
  schedule::PipelineModel model;
  model.blocking_power_w = workload.blocking_power_w;
  auto graph = schedule::BuildInstructionGraph(*schedule, *profile, model);
  if (!graph) return Fail(graph);
  const auto planner = plan::Planner::Create(*std::move(graph), {workload.blocking_power_w, 0});
  if (!planner) return Fail(planner);

  Comparison comparison;
  comparison.workload = workload;
  std::vector<Nanoseconds> forward;
  forward.reserve(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    forward.push_back(profile->Find(stage, 0, InstructionKind::kForward)->options.front().time);
  }
  const auto [fastest, slowest] = std::minmax_element(forward.begin(), forward.end());
  comparison.imbalance = ToSeconds(*slowest) / ToSeconds(*fastest);
  comparison.forward_s = ToSeconds(*slowest);
  const plan::Evaluation& baseline = planner->baseline();
  comparison.average_power_w = baseline.average_power_w() / stages;
  for (std::size_t i = 0; i < kSlowdowns.size(); ++i) {
    const auto deadline =
        static_cast<Nanoseconds>(std::floor(static_cast<double>(baseline.time) * kSlowdowns[i]));
    const auto plan = planner->PlanFor(deadline);
    if (!plan) return Fail(plan);
    const auto energy_j = [&](const plan::Evaluation& run) {
      return run.energy_j + stages * workload.blocking_power_w * ToSeconds(deadline - run.time);
    };
    comparison.modeled[i] = 100 * (1 - energy_j(plan->evaluation) / energy_j(baseline));
  }
  const auto envpipe = baselines::MakeEnvPipe()->Points(*planner, {});
  if (!envpipe) return Fail(envpipe);
  const plan::Evaluation& run = envpipe->points.front().evaluation;
  comparison.modeled_envpipe = {100 * (1 - run.energy_j / baseline.energy_j),
                                100 * (ToSeconds(run.time) / ToSeconds(baseline.time) - 1)};
  return comparison;
}

// Ranks from 1. Equal values share their mean rank.
std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values) {
    const auto below =
        std::count_if(values.begin(), values.end(), [&](double other) { return other < value; });
    const auto equal = std::count(values.begin(), values.end(), value);
    ranks.push_back(static_cast<double>(below) + static_cast<double>(equal + 1) / 2);
  }
  return ranks;
}

// The correlation of Spearman: that of Pearson of the ranks.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = Ranks(a);
  const std::vector<double> y = Ranks(b);
  const double mean = static_cast<double>(x.size() + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

void PrintTable(const std::vector<Comparison>& comparisons) {
  fmt::print("| workload | GPU | forward ms | imbalance | W |");
  for (const double slowdown : kSlowdowns) fmt::print(" {} |", slowdown);
  fmt::print("\n|---|---|---|---|---|");
  for (std::size_t i = 0; i < kSlowdowns.size(); ++i) fmt::print("---|");
  fmt::print("\n");
  for (const Comparison& comparison : comparisons) {
    const Workload& workload = comparison.workload;
    fmt::print("| {} | {} | {:.0f} | {:.2f} | {:.0f} |", workload.spec.workload.model, workload.gpu,
               1e3 * comparison.forward_s, comparison.imbalance, comparison.average_power_w);
    for (std::size_t i = 0; i < kSlowdowns.size(); ++i) {
      fmt::print(" {:.1f} ({:.1f}) |", comparison.modeled[i], workload.measured[i]);
    }
    fmt::print("\n");
  }
}

void PrintEnvPipe(const std::vector<Comparison>& comparisons) {
  fmt::print("\n| workload | GPU | saving | slowdown |\n|---|---|---|---|\n");
  for (const Comparison& comparison : comparisons) {
    const WithEnvPipe& modeled = comparison.modeled_envpipe;
    const WithEnvPipe& measured = comparison.workload.measured_envpipe;
    fmt::print("| {} | {} | {:.1f} ({:.1f}) | {:.1f} ({:.1f}) |\n",
               comparison.workload.spec.workload.model, comparison.workload.gpu, modeled.saving,
               measured.saving, modeled.slowdown, measured.slowdown);
  }
}

void PrintAgreement(const std::vector<Comparison>& comparisons) {
  fmt::print("\n| rank correlation |");
  for (const double slowdown : kSlowdowns) fmt::print(" {} |", slowdown);
  fmt::print("\n|---|");
  for (std::size_t i = 0; i < kSlowdowns.size(); ++i) fmt::print("---|");
  fmt::print("\n");
  for (const std::string_view gpu : {"A100", "A40", "all"}) {
    fmt::print("| {} |", gpu);
    for (std::size_t i = 0; i < kSlowdowns.size(); ++i) {
      std::vector<double> modeled, measured;
      for (const Comparison& comparison : comparisons) {
        if (gpu != "all" && comparison.workload.gpu != gpu) continue;
        modeled.push_back(comparison.modeled[i]);
        measured.push_back(comparison.workload.measured[i]);
      }
      fmt::print(" {:.2f} |", RankCorrelation(modeled, measured));
    }
    fmt::print("\n");
  }
  fmt::print("| mean distance, points |");
  for (std::size_t i = 0; i < kSlowdowns.size(); ++i) {
    double sum = 0;
    for (const Comparison& comparison : comparisons) {
      sum += std::abs(comparison.modeled[i] - comparison.workload.measured[i]);
    }
    fmt::print(" {:.1f} |", sum / static_cast<double>(comparisons.size()));
  }
  fmt::print("\n");
}

Result<void> Print(bool recomputes_activations) {
  const auto workloads = ReadWorkloads(recomputes_activations);
  if (!workloads) return Fail(workloads);
  std::vector<Comparison> comparisons;
  for (const Workload& workload : *workloads) {
    auto comparison = Compare(workload);
    if (!comparison) return Fail(comparison);
    comparisons.push_back(*std::move(comparison));
  }
  PrintTable(comparisons);
  PrintAgreement(comparisons);
  PrintEnvPipe(comparisons);
  return {};
}

int Main(std::string_view mode) {
  if (!mode.empty() && mode != "kept") {
    fmt::print(stderr, "unknown mode {} (give none, or kept)\n", mode);
    return 2;
  }
  if (const Result<void> printed = Print(mode != "kept"); !printed) {
    fmt::print(stderr, "{}\n", printed.error().message);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace perseus

int main(int argc, char** argv) { return perseus::Main(argc > 1 ? argv[1] : ""); }
