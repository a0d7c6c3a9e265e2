// `perseus qualify` measures what a node can do, and writes the facts that planning needs.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/base/host.h"
#include "perseus/cli/flags/node_setup.h"
#include "perseus/cli/terminal/row_block.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/verbs/facts_table.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/agent/settings_guard.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"
#include "perseus/runtime/qualifier/cuda_node.h"
#include "perseus/runtime/qualifier/qualification.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::cli {
namespace {

using hardware_facts::HardwareFacts;

constexpr const char* kQualifyAbout =
    "Measure in five minutes what the GPUs of this node do when their clocks change: how long a\n"
    "change takes, what it costs other work, and the power of a GPU that is idle, blocked or busy. "
    "Restores every clock at its end.";
constexpr const char* kQualifyExamples =
    "  sudo perseus qualify                     # no agent, no job; writes facts.toml\n"
    "  perseus qualify --no-clocks              # what needs no right to set clocks";

// A load kernel ends by itself after ten minutes (qualifier/cuda_node.h). So each measurement
// window must be shorter. The longest window is the window of the energy counter, a tenth of the
// duration. With a duration of one hour, this window takes six minutes.
constexpr double kLongestDuration = 3'600;

struct QualifyFlags {
  DirectFlags direct;
  std::vector<std::string> gpus;
  std::string output = "facts.toml";
  double duration_s = 300;
  bool sets_no_clocks = false;
  bool is_forced = false;
};

// Returns the GPUs with the chosen UUIDs, or all GPUs if no UUID is chosen.
Result<std::vector<device::Device*>> ChooseGpus(const device::DeviceList& devices,
                                                const std::vector<std::string>& chosen) {
  std::vector<std::string> uuids;
  std::vector<device::Device*> gpus;
  for (const auto& device : devices.devices) {
    uuids.push_back(device->info().uuid);
    if (chosen.empty() || std::ranges::count(chosen, uuids.back()) > 0) {
      gpus.push_back(device.get());
    }
  }
  for (const std::string& uuid : chosen) {
    if (std::ranges::count(uuids, uuid) > 0) continue;
    return Fail("this node has no usable GPU {} (its GPUs: {})", uuid, fmt::join(uuids, ", "));
  }
  if (!gpus.empty()) return gpus;
  return FailAs(ErrorKind::kSystem, "this node has no usable GPU (see perseus doctor)");
}

// Returns sentences about other causes that limit clocks.
std::vector<std::string> LimitsOf(const QualifyFlags& flags, const device::DeviceList& devices) {
  std::vector<std::string> limits;
  for (const device::RefusedDevice& refused : devices.refused) {
    limits.push_back(fmt::format("{} was not measured: {}.", refused.what, refused.why));
  }
  for (const agent::Finding& finding : ExamineNode(flags.direct)) {
    if (finding.level == agent::Finding::Level::kGood || finding.what == "agent") continue;
    limits.push_back(fmt::format("{}: {}.", finding.what, finding.detail));
  }
  return limits;
}

// Fails (kSystem) if an agent runs.
Result<void> RefuseBesideAgent(const DirectFlags& flags) {
  if (!protocol::Connect(flags.socket)) return {};
  return FailAs(ErrorKind::kSystem,
                "an agent runs on {}, and only it may set clocks (stop it to measure)",
                flags.socket);
}

// Fails (kSystem) if other programs use the GPUs, unless the user forces the measurement. Adds what
// is known about other programs to `limits`.
Result<void> CheckPrograms(const std::vector<device::Device*>& gpus, bool is_forced,
                           std::vector<std::string>& limits) {
  std::vector<std::string> programs;
  for (device::Device* gpu : gpus) {
    const auto found = gpu->DescribePrograms();
    if (!found) {
      limits.push_back(fmt::format("Whether other programs use {} is unknown: {}.",
                                   gpu->info().uuid, found.error().Message()));
    } else if (!found->empty()) {
      programs.push_back(*found);
      limits.push_back(fmt::format("Another program ran during the measurement: {}.", *found));
    }
  }
  if (programs.empty() || is_forced) return {};
  return FailAs(ErrorKind::kSystem,
                "the GPUs are busy: {} (measure without other programs; --force measures all the "
                "same, and disturbs them)",
                fmt::join(programs, ", "));
}

Result<void> RunQualify(const Streams& streams, const QualifyFlags& flags) {
  if (flags.direct.devices.starts_with("virtual:")) {
    return Fail("virtual GPUs have no facts to measure (run perseus qualify on real GPUs)");
  }
  PERSEUS_RETURN_IF_ERROR(RefuseBesideAgent(flags.direct));
  PERSEUS_ASSIGN_OR_RETURN(auto signals, EndSignals::Take());
  PERSEUS_ASSIGN_OR_RETURN(const auto devices,
                           device::OpenDevices(flags.direct.devices, virtual_gpu::OpenVirtualNode));
  PERSEUS_ASSIGN_OR_RETURN(const auto gpus, ChooseGpus(devices, flags.gpus));
  std::vector<std::string> limits = LimitsOf(flags, devices);
  PERSEUS_RETURN_IF_ERROR(CheckPrograms(gpus, flags.is_forced, limits));
  RowBlock block(streams.err);
  qualifier::QualifyOptions options{
      .duration_s = flags.duration_s,
      .sets_clocks = !flags.sets_no_clocks,
      .should_stop = [&signals] { return signals.HaveCome(); },
      .progress = [&block](std::string_view label,
                           double fraction) { block.Begin(std::string(label), fraction); }};
  // If this program cannot write the state file, it sets no clocks, because after a crash nobody
  // could restore the GPU.
  const auto directory = std::filesystem::path(flags.direct.state).parent_path();
  if (options.sets_clocks && geteuid() != 0 && access(directory.c_str(), W_OK) != 0) {
    options.sets_clocks = false;
    limits.push_back(fmt::format("This user cannot write {}, so no clock was set (run as root).",
                                 flags.direct.state));
  }
  std::optional<agent::SettingsGuard> guard;
  if (options.sets_clocks) {
    PERSEUS_ASSIGN_OR_RETURN(auto boot_id, BootId());
    auto taken = agent::SettingsGuard::Take(
        gpus, {.state = flags.direct.state, .boot_id = boot_id, .holder = "perseus qualify"});
    if (!taken) {
      return FailAs(ErrorKind::kSystem, "{} (or measure without clocks: --no-clocks)",
                    taken.error().Message());
    }
    guard.emplace(*std::move(taken));
  }
  auto qualified = qualifier::Qualify(*qualifier::OpenCudaNode(gpus), options);
  Result<void> restored;
  if (guard) {
    restored = qualified && !qualified->has_set_clocks ? guard->Forget() : guard->Restore();
  }
  if (!qualified) {
    return restored ? Result<void>(Fail(qualified))
                    : FailAs(ErrorKind::kSystem, "{}; {}", qualified.error().Message(),
                             restored.error().Message());
  }
  HardwareFacts& facts = qualified->facts;
  std::ranges::move(limits, std::back_inserter(facts.limits));
  facts.host = HostName();
  const std::string& version = gpus.front()->info().driver_version;
  facts.driver_version = version.empty() ? "unknown" : version;
  facts.perseus_version = PERSEUS_VERSION;
  facts.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  PERSEUS_RETURN_IF_ERROR(hardware_facts::Write(flags.output, facts));
  PERSEUS_RETURN_IF_ERROR(
      streams.Print(FormatFacts(facts) + fmt::format("wrote {}\n", flags.output)));
  return restored;
}

}  // namespace

Verb AddQualifyVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<QualifyFlags>(program, "qualify", kQualifyAbout, kQualifyExamples);
  AddDirectFlags(add, flags->direct);
  add.Repeatable("--gpu", flags->gpus, "UUID", "Only this GPU; may be repeated (default: all)");
  add("-o,--output,--out", flags->output, "FILE.toml", "The facts (default: facts.toml)");
  add("--duration", flags->duration_s, "SECONDS", "How long to measure (default: 300)",
      NumberIn({10, kLongestDuration, "in seconds"}));
  verb->add_flag("--no-clocks", flags->sets_no_clocks,
                 "Measure only what needs no right to set clocks");
  verb->add_flag("--force", flags->is_forced, "Measure although other programs use the GPUs");
  return {verb, [flags = flags](const Streams& streams) { return RunQualify(streams, *flags); }};
}

}  // namespace perseus::cli
