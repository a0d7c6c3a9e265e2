// The planner for the page "Is it worth it for me?": a published architecture on a modeled GPU in,
// the plan with no slowdown out. It is compiled to WebAssembly from the sources of the program, so
// the page shows what these two commands print (a test compares them):
//
//   perseus synth --model M --gpu G --stages S --microbatch-size B --tensor-parallel T -o
//   profile.csv perseus plan profile.csv --schedule 1f1b --microbatches N --blocking-power P
//   --gpus-per-stage T
//       --per-instruction --no-frontier
//
// Texts go in and out as UTF-8 that ends with 0. There are no exceptions: errors are values here,
// and a failure of the C++ library (no memory) ends the module, which the page says.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"
#include "perseus/simulation/synthetic/model_profile.h"
#include "perseus/simulation/synthetic/model_zoo.h"

#define PERSEUS_EXPORT(name) extern "C" __attribute__((export_name(#name)))

namespace {

// The last answer. Texts of the models and messages have no quotes or control characters, but for
// quoted names in messages.
std::string answer;

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + '"';
}

struct Job {
  perseus::synthetic::ModelProfileSpec profile;
  int microbatches = 0;
  double blocking_power_w = -1;  // Negative: that of the GPU's model.
};

perseus::Result<std::string> Estimate(const Job& job) {
  using namespace perseus;
  PERSEUS_ASSIGN_OR_RETURN(const auto modeled, synthetic::SynthesizeModelProfile(job.profile));
  // As through a file.
  PERSEUS_ASSIGN_OR_RETURN(const auto profile,
                           profile::ParseProfile(profile::FormatProfile(modeled), "profile"));
  schedule::ScheduleSpec spec{.name = "1f1b"};
  spec.pp_ranks = profile.stages();
  spec.microbatches = job.microbatches;
  PERSEUS_ASSIGN_OR_RETURN(const auto order, schedule::GenerateSchedule(spec));
  schedule::PipelineModel pipeline;
  pipeline.gpus_per_stage = job.profile.workload.tensor_parallel;
  pipeline.blocking_power_w =
      job.blocking_power_w < 0 ? job.profile.gpu.blocking_power_w : job.blocking_power_w;
  PERSEUS_ASSIGN_OR_RETURN(auto graph, schedule::BuildInstructionGraph(order, profile, pipeline));
  const plan::ExecutionModel model{.blocking_power_w =
                                       pipeline.gpus_per_stage * pipeline.blocking_power_w};
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(std::move(graph), model));
  PERSEUS_ASSIGN_OR_RETURN(auto plan, plan::PlanForTarget(planner, nullptr, {}));
  discrete_bound::RaiseBound(planner, plan);
  const plan::Evaluation& baseline = planner.baseline();
  return fmt::format(
      R"({{"time_s": {}, "energy_j": {}, "baseline_time_s": {}, "baseline_energy_j": {}, )"
      R"("lower_bound_j": {}, "blocking_power_w": {}}})",
      ToSeconds(plan.evaluation.time), plan.evaluation.energy_j, ToSeconds(baseline.time),
      baseline.energy_j, plan.lower_bound_j, pipeline.blocking_power_w);
}

}  // namespace

// Memory for a text of the caller, of `size` bytes.
PERSEUS_EXPORT(perseus_text) char* Text(std::size_t size) {
  return static_cast<char*>(std::malloc(size));
}

// What the page offers, as JSON.
PERSEUS_EXPORT(perseus_choices) const char* Choices() {
  std::string models;
  std::string gpus;
  for (const auto& model : perseus::synthetic::ModelZoo()) {
    models += fmt::format(R"({}{{"name": {}, "title": {}}})", models.empty() ? "" : ", ",
                          Quoted(model.name), Quoted(model.title));
  }
  for (const auto& gpu : perseus::synthetic::GpuRooflines()) {
    gpus += fmt::format(R"({}{{"name": {}, "blocking_power_w": {}}})", gpus.empty() ? "" : ", ",
                        Quoted(gpu.name), gpu.blocking_power_w);
  }
  answer = fmt::format(R"({{"models": [{}], "gpus": [{}]}})", models, gpus);
  return answer.c_str();
}

// The plan as JSON, or {"error": "…"}.
PERSEUS_EXPORT(perseus_estimate)
const char* EstimateFor(const char* model, const char* gpu, int stages, int microbatches,
                        int microbatch_size, int tensor_parallel, double blocking_power_w) {
  Job job;
  const auto roofline = perseus::synthetic::FindGpuRoofline(gpu);
  if (!roofline) return (answer = "{\"error\": " + Quoted(roofline.error().message) + "}").c_str();
  job.profile.gpu = *roofline;
  job.profile.stages = stages;
  job.profile.workload = {
      .model = model, .microbatch_size = microbatch_size, .tensor_parallel = tensor_parallel};
  job.microbatches = microbatches;
  job.blocking_power_w = blocking_power_w;
  const auto estimate = Estimate(job);
  answer = estimate ? *estimate : "{\"error\": " + Quoted(estimate.error().message) + "}";
  return answer.c_str();
}
