// `perseus synth` makes a profile without a GPU.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "perseus/base/file.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/base/units.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/simulation/synthetic/model_profile.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::cli {
namespace {

constexpr const char* kSynthAbout =
    "Make a profile without a GPU, for first experiments and for plans before a measurement.\n"
    "Without --model, the stages are nearly equal, and a small model of the clock, voltage and\n"
    "power of a GPU gives their times and energies. With --model, the profile is that of a\n"
    "published architecture on a modeled GPU, layer by layer, with the modeled memory of each\n"
    "stage (activation_bytes, model_bytes). The same flags give the same file on every machine.";
constexpr const char* kSynthExamples =
    "  perseus synth --gpu a100 --stages 8 -o profile.csv\n"
    "  perseus synth --gpu a40 --stages 4 --noise 0 \\\n"
    "      --instructions forward,backward_input,backward_weight -o zero-bubble.csv\n"
    "  perseus synth --model gpt3-xl --gpu a100-pcie --stages 4 --microbatch-size 8 \\\n"
    "      --boundaries 0,8,14,21,27 -o gpt3-xl.csv\n"
    "  perseus synth --list-models";
constexpr const char* kDefaultGpuOfModels = "a100-sxm";
constexpr const char* kModelGroup = "Published architectures";

struct SynthFlags {
  synthetic::SyntheticProfileSpec spec;
  std::vector<std::string> instructions;
  std::string path;
  // The values for --model. Flags that apply with and without --model are in `spec`.
  synthetic::ModelProfileSpec model;
  std::string boundaries;
  std::optional<double> power_limit_w;
  bool lists_models = false;
  // The flags that apply only without --model, and the flags that apply only with --model.
  const CLI::Option* gpu = nullptr;
  const CLI::Option* model_name = nullptr;
  std::vector<const CLI::Option*> only_without_model;
  std::vector<const CLI::Option*> only_with_model;
};

std::string ListModels() {
  std::string text = fmt::format("{:18} {:24} {:>10} {:>7} {:>9}\n", "model", "", "parameters",
                                 "layers", "sequence");
  for (const synthetic::ModelInfo& model : synthetic::ModelZoo()) {
    const auto layers = synthetic::LayersOf({.model = std::string(model.name)});
    const std::string length =
        model.sequence_length > 0 ? fmt::format("{}", model.sequence_length) : "images";
    text += fmt::format("{:18} {:24} {:>8.1f} B {:>7} {:>9}\n", model.name, model.title,
                        model.published_parameters / 1e9, layers ? layers->size() : 0, length);
  }
  return text;
}

// Checks the name of the GPU. The modeled GPUs differ with and without --model.
Result<void> CheckGpu(const SynthFlags& flags, bool has_model) {
  if (flags.gpu->count() == 0) return {};
  std::vector<std::string_view> names;
  if (has_model) {
    for (const auto& gpu : synthetic::GpuRooflines()) names.push_back(gpu.name);
  } else {
    for (const auto& gpu : synthetic::GpuModels()) names.push_back(gpu.name);
  }
  if (std::ranges::find(names, flags.spec.gpu) != names.end()) return {};
  return Fail("--gpu: {} exists only {} --model (choose one of {}, or {} --model)", flags.spec.gpu,
              has_model ? "without" : "with", fmt::join(names, ", "), has_model ? "remove" : "add");
}

Result<void> CheckMeaning(const SynthFlags& flags) {
  const bool has_model = flags.model_name->count() > 0;
  PERSEUS_RETURN_IF_ERROR(CheckGpu(flags, has_model));
  if (flags.spec.placement == synthetic::ChunkPlacement::kV && flags.spec.chunks != 2) {
    return Fail("--fold is for two chunks on each pp_rank (add --chunks 2)");
  }
  for (const CLI::Option* option : has_model ? flags.only_without_model : flags.only_with_model) {
    if (option->count() == 0) continue;
    if (has_model) return Fail("{} does not apply with --model (remove it)", option->get_name());
    return Fail("{} needs --model (add --model NAME; --list-models shows the names)",
                option->get_name());
  }
  return {};
}

// Reads a list such as "0,8,14", or "layers" or "blocks" for stages with equal numbers of layers or
// blocks.
Result<void> ReadBoundaries(std::string_view text, synthetic::ModelProfileSpec& spec) {
  if (text == "layers" || text == "blocks") {
    spec.partition =
        text == "blocks" ? synthetic::EvenPartition::kBlocks : synthetic::EvenPartition::kLayers;
    return {};
  }
  for (std::string_view rest = text;;) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const auto number = ParseNumber<int>(rest.substr(0, end));
    if (!number) {
      return Fail(
          "--boundaries: \"{}\" is not a layer number (expected a list such as 0,8,14,21,27, "
          "or layers, or blocks)",
          rest.substr(0, end));
    }
    spec.boundaries.push_back(*number);
    if (end == rest.size()) return {};
    rest.remove_prefix(end + 1);
  }
}

Result<synthetic::ModelProfileSpec> ModelSpec(const SynthFlags& flags) {
  synthetic::ModelProfileSpec spec = flags.model;
  PERSEUS_ASSIGN_OR_RETURN(
      const auto gpu,
      synthetic::FindGpuRoofline(flags.gpu->count() > 0 ? flags.spec.gpu : kDefaultGpuOfModels));
  spec.gpu = gpu;
  if (flags.power_limit_w) spec.gpu.power_limit_w = *flags.power_limit_w;
  spec.pp_ranks = flags.spec.pp_ranks;
  spec.chunks = flags.spec.chunks;
  spec.placement = flags.spec.placement;
  spec.kinds = flags.spec.kinds;
  if (!flags.boundaries.empty()) {
    PERSEUS_RETURN_IF_ERROR(ReadBoundaries(flags.boundaries, spec));
  }
  return spec;
}

// Returns the profile. The profile of an architecture includes memory.
Result<std::string> FormatSyntheticProfile(const SynthFlags& flags) {
  if (flags.model_name->count() == 0) {
    PERSEUS_ASSIGN_OR_RETURN(const auto profile, synthetic::SynthesizeProfile(flags.spec));
    return profile::FormatProfile(profile);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, ModelSpec(flags));
  PERSEUS_ASSIGN_OR_RETURN(const auto profile, synthetic::SynthesizeModelProfile(spec));
  PERSEUS_ASSIGN_OR_RETURN(const auto memory, synthetic::ModelMemory(spec));
  return profile::AddMemory(profile, profile::FormatProfile(profile), memory);
}

// Describes the profile on a terminal, because its hundreds of rows do not explain themselves.
std::string DescribeProfile(const SynthFlags& flags) {
  const bool has_model = flags.model_name->count() > 0;
  const std::string gpu =
      has_model && flags.gpu->count() == 0 ? kDefaultGpuOfModels : flags.spec.gpu;
  return fmt::format(
      "this profile has {} stages of {} on {} GPUs (-o FILE writes it to a file; perseus "
      "synth --help lists the flags)",
      flags.spec.pp_ranks, has_model ? flags.model.workload.model : "a synthetic model", gpu);
}

// Fails if the file has other contents: a wrong name after -o must not destroy measurements. The
// same flags give the same file, so a command may run again.
Result<void> CheckReplacesNothing(const std::string& path, const std::string& text) {
  std::error_code none;  // The ignored error of a file that does not exist.
  if (!std::filesystem::exists(path, none)) return {};
  if (std::filesystem::is_directory(path, none)) {
    return Fail(InFile(path), "is a directory (give a file, such as {})",
                (std::filesystem::path(path) / "profile.csv").string());
  }
  if (!std::filesystem::is_regular_file(path, none)) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto old, ReadFile(path));
  if (old == text || old.find_first_not_of(" \t\r\n") == old.npos) return {};
  return Fail(InFile(path),
              "exists with other contents, and is not overwritten (write into another file, or "
              "remove it)");
}

Result<void> RunSynth(const Streams& streams, SynthFlags flags) {
  if (flags.lists_models) return streams.Print(ListModels());
  if (auto meant = CheckMeaning(flags); !meant) return meant;
  if (!flags.instructions.empty()) {
    flags.spec.kinds.clear();
    for (const std::string& name : flags.instructions) {
      flags.spec.kinds.push_back(*ParseInstructionKind(name));  // CLI11 has checked the names.
    }
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto text, FormatSyntheticProfile(flags));
  if (!flags.path.empty()) {
    PERSEUS_RETURN_IF_ERROR(CheckReplacesNothing(flags.path, text));
    return WriteFileAtomically(flags.path, text);
  }
  PERSEUS_RETURN_IF_ERROR(streams.Print(text));
  if (::isatty(::fileno(streams.out)) == 1) {
    streams.Say(DescribeProfile(flags));
  }
  return {};
}

void AddModelFlags(CLI::App& verb, SynthFlags& flags) {
  synthetic::ModelWorkload& workload = flags.model.workload;
  std::vector<std::string> models;
  for (const synthetic::ModelInfo& model : synthetic::ModelZoo()) models.emplace_back(model.name);
  const FlagAdder of_group(verb, kModelGroup);
  flags.model_name = of_group("--model", workload.model, "NAME", "Architecture", OneOf(models));
  const auto add = [&](const char* name, auto& value, const char* type, const char* help,
                       CLI::Validator check = {}) {
    CLI::Option* option = of_group(name, value, type, help, std::move(check));
    flags.only_with_model.push_back(option);
    return option;
  };
  const auto count = WholeNumberIn({1, 1e6});
  add("--microbatch-size", workload.microbatch_size, "N", "Sequences (or images) of a microbatch",
      count)
      ->capture_default_str();
  add("--sequence-length", workload.sequence_length, "N",
      "Tokens of a sequence (default: the published length)", count);
  add("--tensor-parallel", workload.tensor_parallel, "N", "GPUs that share each stage", count)
      ->capture_default_str();
  add("--boundaries", flags.boundaries, "LIST",
      "First layer of each stage, and the number of layers, such as 0,8,14,21,27; or layers or "
      "blocks: the same number of these in each stage (default: layers)");
  add("--power-limit", flags.power_limit_w, "W",
      "Power limit of the GPU (default: that of the data sheet)",
      NumberIn({1, kMostWatts, "watts"}));
  flags.only_with_model.push_back(
      verb.add_flag("--recompute-activations", flags.model.recomputes_activations,
                    "Run the forward pass of each block again before its backward pass")
          ->group(kModelGroup));
  verb.add_flag("--list-models", flags.lists_models, "Print the architectures and exit")
      ->group(kModelGroup);
}

}  // namespace

Verb AddSynthVerb(CLI::App& program) {
  auto [verb, without_default, flags] =
      AddVerb<SynthFlags>(program, "synth", kSynthAbout, kSynthExamples);
  synthetic::SyntheticProfileSpec& spec = flags->spec;
  std::vector<std::string> gpus;
  for (const synthetic::GpuModel& model : synthetic::GpuModels()) gpus.emplace_back(model.name);
  for (const synthetic::GpuRoofline& gpu : synthetic::GpuRooflines()) {
    if (std::find(gpus.begin(), gpus.end(), gpu.name) == gpus.end()) gpus.emplace_back(gpu.name);
  }
  std::vector<std::string> computations;
  for (auto kind = InstructionKind::kForward; IsComputation(kind);
       kind = static_cast<InstructionKind>(static_cast<int>(kind) + 1)) {
    computations.emplace_back(Name(kind));
  }
  const auto add = [&add_plain = without_default](const char* name, auto& value, const char* type,
                                                  const char* help, CLI::Validator check) {
    return add_plain(name, value, type, help, std::move(check))->capture_default_str();
  };
  flags->gpu = add("--gpu", spec.gpu, "NAME",
                   "The model of the GPUs: a100 or a40; with --model a40 or one of the others "
                   "(default: a100; with --model: a100-sxm)",
                   OneOf(gpus));
  add("--stages", spec.pp_ranks, "N", "Pipeline stages (with --chunks: pp_ranks; default: 8)",
      WholeNumberIn({1, kMostPpRanks}));
  add("--chunks", spec.chunks, "N", "Stages (model chunks) on each pp_rank",
      WholeNumberIn({1, kMostChunks}));
  verb->add_flag_function(
      "--fold", [&spec](std::int64_t) { spec.placement = synthetic::ChunkPlacement::kV; },
      "Place stages in a V on the pp_ranks, as zb-v and dualpipe-v do (with --chunks 2)");
  without_default("--instructions", flags->instructions, "KIND,...",
                  "The instructions of the schedule (default: forward,backward)",
                  OneOf(computations))
      ->delimiter(',')
      ->allow_extra_args(false);
  flags->only_without_model = {
      add("--work-scale", spec.work_scale, "X", "Work of a microbatch, relative to the default",
          NumberIn({1e-3, 1e3})),
      add("--head", spec.language_model_head, "X",
          "Extra work of the last stage, as a fraction of a stage",
          NumberIn({0, 10, "a fraction"})),
      add("--imbalance", spec.imbalance, "X", "Relative difference of the work of stages",
          NumberIn({0, 0.9, "a fraction"})),
      add("--noise", spec.noise, "X", "Relative spread of the measurements",
          NumberIn({0, 0.3, "a fraction"})),
      add("--seed", spec.seed, "N", "Seed of imbalance and noise", WholeNumberIn({0, 1e18}))};
  AddModelFlags(*verb, *flags);
  without_default("-o,--output", flags->path, "FILE", "File (default: standard output)");
  return {verb, [flags = flags](const Streams& streams) { return RunSynth(streams, *flags); }};
}

}  // namespace perseus::cli
