// `perseus doctor` shows what works on this node, and the commands that fix problems.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/host.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/cli/verbs/direct_measurement.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/runtime/agent/doctor.h"
#include "perseus/runtime/agent/latency_check.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/runtime/qualifier/cuda_node.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::cli {
namespace {

constexpr const char* kDoctorAbout =
    "Show what works on this node, what does not, and the command that fixes each problem.\n"
    "Changes nothing, except that --measure-latency switches clocks and then restores them.";
constexpr const char* kDoctorExamples =
    "Examples:\n"
    "  perseus doctor\n"
    "  sudo perseus doctor --measure-latency -o latency.toml\n"
    "  perseus plan profile.csv --job latency.toml ...    # with this latency";

struct DoctorFlags {
  DirectFlags direct;
  bool measures_latency = false;
  std::string output;
  bool as_json = false;
};

struct Measured {
  std::string uuid;
  std::optional<device::SwitchLatency> latency;  // Absent if the measurement failed.
  std::string failure;
  std::string why_no_load;  // Empty if a load ran on the GPU.
};

double ToMs(Nanoseconds time) { return static_cast<double>(time) / 1e6; }

agent::Finding FindingOf(const Measured& measured) {
  const std::string what = measured.uuid + " switching";
  if (!measured.latency) return {agent::Finding::Level::kProblem, what, measured.failure, ""};
  const device::SwitchLatency& latency = *measured.latency;
  if (latency.samples.empty() && measured.why_no_load.empty()) {
    return {agent::Finding::Level::kNote, what,
            fmt::format("none of {} switches was observed, although a load ran on the GPU",
                        latency.unseen),
            "run perseus qualify, which sees a switch in the work of its load"};
  }
  if (latency.samples.empty()) {
    return {agent::Finding::Level::kNote, what,
            fmt::format("none of {} switches was observed. An idle GPU stays at its idle clock, so "
                        "a locked clock does not show, and no load was started: {}",
                        latency.unseen, measured.why_no_load),
            "run a program on the GPU and repeat"};
  }
  return {agent::Finding::Level::kGood, what,
          fmt::format("{:.1f} ms (median), {:.1f} ms (95 %), {:.1f} ms (longest) of {} switches{}",
                      ToMs(latency.Percentile(0.5)), ToMs(latency.Percentile(0.95)),
                      ToMs(latency.Percentile(1)), latency.samples.size(),
                      latency.unseen == 0 ? "" : fmt::format("; {} not observed", latency.unseen)),
          ""};
}

// Runs the kernel of perseus qualify that computes. Null, with the reason, if it cannot.
std::shared_ptr<void> StartLoad(device::Device& gpu, std::string& why_not) {
  std::shared_ptr<qualifier::MeasuredNode> node = qualifier::OpenCudaNode({&gpu});
  why_not = node->WhyNot(qualifier::Load::kCompute);
  if (!why_not.empty()) return nullptr;
  if (const auto running = node->Run(0, qualifier::Load::kCompute); !running) {
    why_not = running.error().message;
    return nullptr;
  }
  return node;
}

Result<Measured> MeasureOne(const DoctorFlags& flags, const std::string& boot_id,
                            device::Device& gpu) {
  Measured measured;
  measured.uuid = gpu.info().uuid;
  if (!gpu.info().measure_only.empty()) {
    measured.failure = gpu.info().measure_only;
    return measured;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto around, LookAround(flags.direct, {&gpu}));
  measured.why_no_load = around.programs.empty() ? "" : around.programs.front();
  if (gpu.info().backend != "nvml") measured.why_no_load = "it is no NVIDIA GPU";
  agent::LatencyCheck check{.state = flags.direct.state, .boot_id = boot_id};
  // A load would disturb programs that run on the GPU, and they are a load already.
  if (measured.why_no_load.empty()) {
    check.start_load = [&] { return StartLoad(gpu, measured.why_no_load); };
  }
  auto latency = agent::MeasureSafely(gpu, check);
  if (latency) {
    measured.latency = *std::move(latency);
  } else {
    measured.failure = latency.error().message;
  }
  return measured;
}

Result<std::vector<Measured>> MeasureAll(const DoctorFlags& flags,
                                         const device::DeviceList& devices) {
  PERSEUS_RETURN_IF_ERROR(RefuseBesideAgent(flags.direct));
  PERSEUS_ASSIGN_OR_RETURN(auto boot_id, BootId());
  std::vector<Measured> all;
  for (const auto& device : devices.devices) {
    PERSEUS_ASSIGN_OR_RETURN(auto measured, MeasureOne(flags, boot_id, *device));
    all.push_back(std::move(measured));
  }
  return all;
}

// The part of a job file. As from hardware facts, plans use the median of the slowest GPU.
Result<std::string> FormatJobPart(const std::vector<Measured>& all, const std::string& output) {
  Nanoseconds slowest = -1;
  std::string comments;
  for (const Measured& measured : all) {
    if (!measured.latency || measured.latency->samples.empty()) continue;
    slowest = std::max(slowest, measured.latency->Percentile(0.5));
    comments += fmt::format("# {}: {}\n", measured.uuid, FindingOf(measured).detail);
  }
  if (slowest < 0) {
    return FailAs(ErrorKind::kSystem,
                  "the switch latency of no GPU could be measured, so {} is not written (see "
                  "above)",
                  output);
  }
  return fmt::format(
      "# Measured by perseus doctor: the median of the slowest GPU.\n{}[gpu]\n"
      "switch_latency_ms = {:.3f}\n",
      comments, ToMs(slowest));
}

std::string FormatScreen(const std::vector<agent::Finding>& findings) {
  std::string text;
  for (const agent::Finding& finding : findings) {
    constexpr std::string_view kMarks[] = {"ok     ", "note   ", "PROBLEM"};
    text += fmt::format("{}  {}: {}\n", kMarks[static_cast<std::size_t>(finding.level)],
                        finding.what, finding.detail);
    if (!finding.remedy.empty()) text += fmt::format("         -> {}\n", finding.remedy);
  }
  return text;
}

std::string FormatJson(const std::vector<agent::Finding>& findings) {
  const nlohmann::ordered_json object{
      {"format", "perseus-doctor"}, {"version", 1}, {"findings", FindingsAsJson(findings)}};
  return object.dump(2) + "\n";
}

Result<void> RunDoctor(const Streams& streams, const DoctorFlags& flags) {
  if (!flags.output.empty() && !flags.measures_latency) {
    return Fail("-o writes the result of --measure-latency (add --measure-latency)");
  }
  std::vector<agent::Finding> findings = ExamineNode(flags.direct);
  const auto devices = device::OpenDevices(flags.direct.devices, virtual_gpu::OpenVirtualNode);
  std::ranges::move(agent::ExamineDevices(devices), std::back_inserter(findings));

  Result<void> written;
  if (flags.measures_latency && devices) {
    PERSEUS_ASSIGN_OR_RETURN(const auto measured, MeasureAll(flags, *devices));
    std::ranges::transform(measured, std::back_inserter(findings), FindingOf);
    if (!flags.output.empty()) {
      const auto part = FormatJobPart(measured, flags.output);
      written = part ? WriteFileAtomically(flags.output, *part) : Result<void>(Fail(part));
    }
  }
  if (auto printed = streams.Print(flags.as_json ? FormatJson(findings) : FormatScreen(findings));
      !printed) {
    return printed;
  }
  if (!written) return written;
  const auto problems =
      std::ranges::count(findings, agent::Finding::Level::kProblem, &agent::Finding::level);
  if (problems == 0) return {};
  return FailAs(ErrorKind::kSystem, "{} (see above)", Counted(problems, "problem"));
}

}  // namespace

Verb AddDoctorVerb(CLI::App& program) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* verb = program.add_subcommand("doctor", kDoctorAbout);
  verb->footer(kDoctorExamples);
  AddDirectFlags(*verb, flags->direct);
  verb->add_flag(
      "--measure-latency", flags->measures_latency,
      "Measure how long a clock switch takes, then restore the clocks (stop the agent first). "
      "Runs a load on GPUs that are not busy");
  verb->add_option("-o,--output", flags->output,
                   "Write the measured latency as part of a job file for perseus plan")
      ->type_name("FILE.toml");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of text");
  return {verb, [flags](const Streams& streams) { return RunDoctor(streams, *flags); }};
}

}  // namespace perseus::cli
