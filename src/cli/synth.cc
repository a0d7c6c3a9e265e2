// `perseus synth`: a profile without a GPU.
#include <cstdio>
#include <limits>
#include <memory>

#include "flag_checks.h"
#include "perseus/base/file.h"
#include "perseus/profile/synthetic_profile.h"
#include "standard_output.h"
#include "verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kAbout =
    "Make a profile from a small model of a GPU's clock, voltage and power: for trying things out\n"
    "and for planning before anything was measured. The same flags give the same file everywhere.";
constexpr const char* kExamples =
    "Examples:\n"
    "  perseus synth --gpu a100 --stages 8 -o profile.csv\n"
    "  perseus synth --gpu a40 --stages 4 --noise 0 \\\n"
    "      --instructions forward,backward_input,backward_weight -o zero-bubble.csv";

struct SynthFlags {
  SyntheticProfileSpec spec;
  std::vector<std::string> instructions;
  std::string path;
};

Result<void> RunSynth(SynthFlags flags) {
  if (!flags.instructions.empty()) {
    flags.spec.kinds.clear();
    for (const std::string& name : flags.instructions) {
      flags.spec.kinds.push_back(*ParseInstructionKind(name));  // CLI11 has checked the names.
    }
  }
  const auto profile = SynthesizeProfile(flags.spec);
  if (!profile) return Fail(profile);
  const std::string text = FormatProfile(*profile);
  if (!flags.path.empty()) return WriteFileAtomically(flags.path, text);
  return Print(text);
}

}  // namespace

Verb AddSynthVerb(CLI::App& program) {
  auto flags = std::make_shared<SynthFlags>();
  SyntheticProfileSpec& spec = flags->spec;
  CLI::App* verb = program.add_subcommand("synth", kAbout);
  verb->footer(kExamples);
  std::vector<std::string> gpus;
  for (const GpuModel& model : GpuModels()) gpus.emplace_back(model.name);
  std::vector<std::string> computations;
  for (auto kind = InstructionKind::kForward; IsComputation(kind);
       kind = static_cast<InstructionKind>(static_cast<int>(kind) + 1)) {
    computations.emplace_back(Name(kind));
  }
  auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return verb->add_option(name, value, help)->type_name(type)->capture_default_str();
  };
  // The library knows the ranges; what is checked here is that these are numbers.
  constexpr double kAny = std::numeric_limits<double>::max();
  const auto number = NumberIn({-kAny, kAny}, "such as 0.02");
  add("--gpu", spec.gpu, "NAME", "What the GPUs are like")->check(CLI::IsMember(gpus));
  add("--stages", spec.stages, "N", "Pipeline stages")->check(WholeNumberIn({1, 100'000}));
  add("--chunks", spec.chunks, "N", "Model chunks on each stage")->check(WholeNumberIn({1, 1'000}));
  verb->add_flag_function(
      "--fold", [&spec](std::int64_t) { spec.placement = ChunkPlacement::kV; },
      "Stages fold back at the last rank, as for zb-v and dualpipe-v");
  verb->add_option("--instructions", flags->instructions,
                   "What the schedule runs (default forward,backward)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(computations))
      ->type_name("KIND,...");
  add("--work-scale", spec.work_scale, "X", "Work of a microbatch, relative to the model's own")
      ->check(number);
  add("--head", spec.language_model_head, "X", "Extra work of the last stage, as a part of a stage")
      ->check(number);
  add("--imbalance", spec.imbalance, "X", "How far stages differ in work")->check(number);
  add("--noise", spec.noise, "X", "Spread of the measurements")->check(number);
  add("--seed", spec.seed, "N", "Of imbalance and noise")->check(WholeNumberIn({0, 1e18}));
  verb->add_option("-o,--output", flags->path, "File (default: standard output)")
      ->type_name("FILE");
  return {verb, [flags] { return RunSynth(*flags); }};
}

}  // namespace perseus::cli
