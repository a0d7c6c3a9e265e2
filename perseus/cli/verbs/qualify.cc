// `perseus qualify` measures what a node can do, and writes the facts that planning needs.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/base/host.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/progress_bar.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/direct_measurement.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/agent/settings_guard.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/runtime/qualifier/cuda_node.h"
#include "perseus/runtime/qualifier/qualification.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::cli {
namespace {

using hardware_facts::Estimate;
using hardware_facts::HardwareFacts;

constexpr const char* kQualifyAbout =
    "Measure in five minutes what the GPUs of this node do when their clocks change: how long a\n"
    "change takes, what it costs other work, and the power of a GPU that is idle, blocked or "
    "busy.\n"
    "Restores every clock at its end.";
constexpr const char* kQualifyExamples =
    "Examples:\n"
    "  sudo perseus qualify                     # no agent, no job; writes facts.toml\n"
    "  perseus qualify --no-clocks              # what needs no right to set clocks";

// A load kernel ends by itself after ten minutes (qualifier/cuda_node.h), and the longest window,
// of the energy counter, takes a tenth of the duration. In an hour, that is six minutes.
constexpr double kLongestDuration = 3'600;

struct QualifyFlags {
  DirectFlags direct;
  std::vector<std::string> gpus;
  std::string output = "facts.toml";
  double duration_s = 300;
  bool sets_no_clocks = false;
  bool is_forced = false;
};

std::string FormatEstimate(const Estimate& estimate, const char* number) {
  return fmt::format("{} ({} to {})", fmt::format(fmt::runtime(number), estimate.value),
                     fmt::format(fmt::runtime(number), estimate.low),
                     fmt::format(fmt::runtime(number), estimate.high));
}

std::string FormatEstimate(const std::optional<Estimate>& estimate, const char* number) {
  return estimate ? FormatEstimate(*estimate, number) : "-";
}

std::string FormatSwitches(const HardwareFacts& facts) {
  if (facts.switches.empty()) return "";
  Table table({"switch", "of", "latency (ms)", "95 % of them (ms)", "call (ms)", "samples"});
  for (const auto& one : facts.switches) {
    table.AddRow({fmt::format("{}, {}", one.is_far ? "far" : "near",
                              one.direction == hardware_facts::Direction::kUp ? "up" : "down"),
                  one.all_gpus ? "all GPUs" : "one GPU", FormatEstimate(one.latency_ms, "{:.2f}"),
                  fmt::format("{:.2f}", one.p95_latency_ms), FormatEstimate(one.call_ms, "{:.2f}"),
                  std::to_string(one.latency_ms.samples)});
  }
  return table.Format() + "\n";
}

std::string FormatPower(const HardwareFacts& facts) {
  if (facts.power.empty()) return "";
  Table table({"SM clock (MHz)", "idle (W)", "blocked (W)", "busy (W)"});
  for (const auto& one : facts.power) {
    table.AddRow({std::to_string(one.sm_clock_mhz), FormatEstimate(one.idle_w, "{:.1f}"),
                  FormatEstimate(one.blocked_w, "{:.1f}"), FormatEstimate(one.busy_w, "{:.1f}")});
  }
  return table.Format() + "\n";
}

std::string FormatInterference(const HardwareFacts& facts) {
  if (facts.interference.empty()) return "";
  Table table({"operation", "changes/s", "reads/s and GPU", "takes longer by (%)"});
  for (const auto& one : facts.interference) {
    const Estimate percent{100 * one.slowdown.value, 100 * one.slowdown.low,
                           100 * one.slowdown.high, one.slowdown.samples};
    table.AddRow({one.kind, fmt::format("{:g}", one.changes_per_s),
                  fmt::format("{:g}", one.reads_per_s), FormatEstimate(percent, "{:.2f}")});
  }
  return table.Format() + "\n";
}

// The chosen ones of `uuids`: all without a choice.
Result<std::vector<std::size_t>> ChooseGpus(const std::vector<std::string>& uuids,
                                            const std::vector<std::string>& chosen) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (chosen.empty() || std::ranges::count(chosen, uuids[i]) > 0) indices.push_back(i);
  }
  for (const std::string& uuid : chosen) {
    if (std::ranges::count(uuids, uuid) > 0) continue;
    return Fail("this node has no usable GPU {} (its GPUs: {})", uuid, fmt::join(uuids, ", "));
  }
  if (indices.empty()) {
    return FailAs(ErrorKind::kSystem, "this node has no usable GPU (see perseus doctor)");
  }
  return indices;
}

qualifier::QualifyOptions OptionsOf(const QualifyFlags& flags, ProgressBar& bar) {
  return {.duration_s = flags.duration_s,
          .sets_clocks = !flags.sets_no_clocks,
          .progress = [&bar](std::string_view label, double fraction) {
            bar.Begin(std::string(label), fraction);
          }};
}

Result<void> Finish(const Streams& streams, const QualifyFlags& flags,
                    qualifier::Qualification& qualified, std::string host,
                    std::string driver_version) {
  HardwareFacts& facts = qualified.facts;
  facts.host = std::move(host);
  facts.driver_version = std::move(driver_version);
  facts.perseus_version = PERSEUS_VERSION;
  facts.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  PERSEUS_RETURN_IF_ERROR(hardware_facts::Write(flags.output, facts));
  return streams.Print(FormatFacts(facts) + fmt::format("wrote {}\n", flags.output));
}

// What limits clocks besides us, as sentences.
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

Result<void> RunQualify(const Streams& streams, const QualifyFlags& flags) {
  if (flags.direct.devices.starts_with("virtual:")) {
    return Fail("virtual GPUs have no facts to measure (run perseus qualify on real GPUs)");
  }
  PERSEUS_RETURN_IF_ERROR(RefuseBesideAgent(flags.direct));
  PERSEUS_ASSIGN_OR_RETURN(auto signals, EndSignals::Take());
  PERSEUS_ASSIGN_OR_RETURN(const auto devices,
                           device::OpenDevices(flags.direct.devices, virtual_gpu::OpenVirtualNode));
  std::vector<std::string> uuids;
  for (const auto& device : devices.devices) uuids.push_back(device->info().uuid);
  PERSEUS_ASSIGN_OR_RETURN(const auto chosen, ChooseGpus(uuids, flags.gpus));
  std::vector<device::Device*> gpus;
  gpus.reserve(chosen.size());
  for (const std::size_t i : chosen) gpus.push_back(devices.devices[i].get());
  PERSEUS_ASSIGN_OR_RETURN(const auto around, LookAround(flags.direct, gpus));
  if (!around.programs.empty() && !flags.is_forced) {
    return FailAs(ErrorKind::kSystem,
                  "the GPUs are busy: {} (measure without other programs; --force measures all the "
                  "same, and disturbs them)",
                  fmt::join(around.programs, ", "));
  }
  std::vector<std::string> limits = LimitsOf(flags, devices);
  std::ranges::copy(around.limits, std::back_inserter(limits));
  for (const std::string& program : around.programs) {
    limits.push_back(fmt::format("Another program ran during the measurement: {}.", program));
  }

  qualifier::QualifyOptions options;
  ProgressBar bar(streams.err);
  options = OptionsOf(flags, bar);
  options.should_stop = [&signals] { return signals.HaveCome(); };
  // Without the right to write the state, nothing is set: nobody could restore it after a crash.
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
                    taken.error().message);
    }
    guard.emplace(*std::move(taken));
  }
  Result<qualifier::Qualification> qualified = [&]() -> Result<qualifier::Qualification> {
    const auto node = qualifier::OpenCudaNode(gpus);
    return qualifier::Qualify(*node, options);
  }();
  Result<void> restored;
  if (guard) {
    restored = qualified && !qualified->has_set_clocks ? guard->Forget() : guard->Restore();
  }
  if (!qualified) {
    return restored ? Result<void>(Fail(qualified))
                    : FailAs(ErrorKind::kSystem, "{}; {}", qualified.error().message,
                             restored.error().message);
  }
  auto& facts = qualified->facts;
  std::ranges::move(limits, std::back_inserter(facts.limits));
  auto finished = Finish(streams, flags, *qualified, HostName(), around.driver_version);
  return finished ? restored : finished;
}

}  // namespace

std::string FormatFacts(const HardwareFacts& facts) {
  std::string text = fmt::format("{}: {} x {}, driver {}\n\n", facts.host, facts.gpu_count,
                                 facts.gpu_name, facts.driver_version);
  text += FormatSwitches(facts) + FormatPower(facts) + FormatInterference(facts);
  if (facts.energy_counter) {
    text += fmt::format(
        "energy counter: changes every {} ms by multiples of {:g} J; counts {} % "
        "more than the power readings\n",
        FormatEstimate(facts.energy_counter->period_ms, "{:.1f}"),
        facts.energy_counter->resolution_j,
        FormatEstimate(
            {100 * facts.energy_counter->bias.value, 100 * facts.energy_counter->bias.low,
             100 * facts.energy_counter->bias.high, facts.energy_counter->bias.samples},
            "{:.2f}"));
  }
  if (facts.max_changes_per_s) {
    const Estimate& rate = *facts.max_changes_per_s;
    text += fmt::format("changes without harm: at least {:g} a second, of the whole node ({})\n",
                        rate.value,
                        rate.high > rate.value ? fmt::format("not shown for {:g}", rate.high)
                                               : "the greatest rate that was tried");
  }
  if (facts.range_lock_saves) {
    text += fmt::format("a lock with min < max {} power while a GPU waits\n",
                        *facts.range_lock_saves ? "saves" : "saves no");
  }
  for (const std::string& limit : facts.limits) text += "limit: " + limit + "\n";
  return text;
}

Verb AddQualifyVerb(CLI::App& program) {
  auto flags = std::make_shared<QualifyFlags>();
  CLI::App* verb = program.add_subcommand("qualify", kQualifyAbout);
  verb->footer(kQualifyExamples);
  AddDirectFlags(*verb, flags->direct);
  verb->add_option("--gpu", flags->gpus, "Only this GPU; may be repeated (default: all)")
      ->type_name("UUID")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  verb->add_option("-o,--output,--out", flags->output, "The facts (default: facts.toml)")
      ->type_name("FILE.toml");
  verb->add_option("--duration", flags->duration_s, "How long to measure (default: 300)")
      ->type_name("SECONDS")
      ->check(NumberIn({10, kLongestDuration}, "in seconds"));
  verb->add_flag("--no-clocks", flags->sets_no_clocks,
                 "Measure only what needs no right to set clocks");
  verb->add_flag("--force", flags->is_forced, "Measure although other programs use the GPUs");
  return {verb, [flags](const Streams& streams) { return RunQualify(streams, *flags); }};
}

}  // namespace perseus::cli
