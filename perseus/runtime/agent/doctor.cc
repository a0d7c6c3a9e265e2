#include "perseus/runtime/agent/doctor.h"

#include <linux/capability.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <variant>

#include "perseus/base/file.h"
#include "perseus/base/number.h"
#include "perseus/runtime/access/access_check.h"
#include "perseus/runtime/agent/agent_lock.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::agent {
namespace {

using Level = Finding::Level;

// The effective capabilities of this process, or nullopt if /proc does not show them.
std::optional<std::uint64_t> EffectiveCapabilities(const std::filesystem::path& root) {
  const auto status = ReadFile(root / "proc/self/status");
  if (!status) return std::nullopt;
  constexpr std::string_view kKey = "CapEff:\t";
  const std::size_t begin = status->find(kKey);
  if (begin == std::string::npos) return std::nullopt;
  const std::string_view digits = std::string_view(*status).substr(begin + kKey.size());
  return ParseNumber<std::uint64_t>(digits.substr(0, digits.find('\n')), 16);
}

bool IsContainer(const std::filesystem::path& root) {
  std::error_code ignored;
  return std::filesystem::exists(root / ".dockerenv", ignored) ||
         std::filesystem::exists(root / "run/.containerenv", ignored);
}

Finding ExamineRights(const DoctorScene& scene) {
  const bool is_container = IsContainer(scene.root);
  const auto capabilities = EffectiveCapabilities(scene.root);
  const std::string where = is_container ? "in a container" : "on the node itself";
  if (capabilities && (*capabilities >> CAP_SYS_ADMIN & 1) != 0) {
    return {Level::kGood, "rights", fmt::format("may set clocks ({}, CAP_SYS_ADMIN)", where), ""};
  }
  return {Level::kNote, "rights",
          fmt::format("may read, not set clocks ({}, user {}, no CAP_SYS_ADMIN)", where, geteuid()),
          is_container
              ? "docker run --gpus all --cap-add SYS_ADMIN ... (only the agent's container)"
              : "sudo perseus doctor; the agent runs as root (docs/agent.md)"};
}

Finding ExamineKernel() {
  utsname system{};
  uname(&system);
  int major = 0;
  int minor = 0;
  const char* end = system.release + std::string_view(system.release).size();
  const auto first = std::from_chars(system.release, end, major);
  if (first.ptr != end) std::from_chars(first.ptr + 1, end, minor);
  // With pidfds (Linux 5.3), the agent notices the end of a process.
  if (std::pair(major, minor) >= std::pair(5, 3)) {
    return {Level::kGood, "kernel", system.release, ""};
  }
  return {Level::kNote, "kernel",
          fmt::format("{} is older than 5.3: the agent notices the end of a client only by its "
                      "connection",
                      system.release),
          ""};
}

// Whether the agent can ask the kernel what an ordinary user may use (access_check.h).
Finding ExamineUsers() {
  if (geteuid() != 0) {
    return {Level::kNote, "other users", "only an agent of root leases GPUs to other users",
            "sudo perseus doctor"};
  }
  constexpr uid_t kOrdinaryUser = 65'534;
  const auto checked = AccessChecker().Check({kOrdinaryUser, kOrdinaryUser, {}, {}}, {"/dev/null"});
  if (checked) {
    return {Level::kGood, "other users", "the agent can check which GPUs a user may use", ""};
  }
  return {Level::kProblem, "other users",
          fmt::format("cannot check which GPUs a user may use: {}", checked.error().Message()),
          "give the agent CAP_SETUID and CAP_SETGID, or run perseus gpu grant"};
}

Finding ExamineAgent(const DoctorScene& scene) {
  const auto socket = protocol::Connect(scene.socket);
  if (!socket) {
    return {Level::kNote, "agent", socket.error().Message(), scene.start_command};
  }
  const auto answer =
      protocol::SendRequest(socket->get(), protocol::Format(protocol::Request(protocol::List{})),
                            std::chrono::seconds(5));
  const auto reply =
      answer ? protocol::ParseReply(answer->text) : Result<protocol::Reply>(Fail(answer));
  if (!reply) return {Level::kProblem, "agent", reply.error().Message(), scene.start_command};
  if (const auto* refused = std::get_if<protocol::Refused>(&*reply)) {
    return {Level::kProblem, "agent", refused->message, ""};
  }
  const auto* listing = std::get_if<protocol::Listing>(&*reply);
  if (listing == nullptr) {
    return {Level::kProblem, "agent", "the agent's answer is not a list of GPUs",
            "install the same version of agent and client"};
  }
  const auto leased = std::ranges::count_if(
      listing->gpus, [](const auto& gpu) { return !gpu.lease.empty() && !gpu.is_restoring; });
  const auto restoring =
      std::ranges::count_if(listing->gpus, [](const auto& gpu) { return gpu.is_restoring; });
  for (const protocol::GpuStatus& gpu : listing->gpus) {
    if (gpu.trouble.empty()) continue;
    return {Level::kProblem, "agent", fmt::format("{}: {}", gpu.uuid, gpu.trouble),
            scene.list_command};
  }
  return {Level::kGood, "agent",
          fmt::format("listens on {}; {} of {} GPUs are leased{}", scene.socket.string(), leased,
                      listing->gpus.size(),
                      restoring == 0 ? "" : fmt::format(", {} being restored", restoring)),
          ""};
}

// Whether an agent listens on `scene.socket`, or on the socket that the state's holder recorded.
bool HasAgent(const DoctorScene& scene) {
  return protocol::Connect(scene.socket) ||
         protocol::Connect(SocketOfHolder(LockPathOf(scene.state)));
}

Finding ExamineState(const DoctorScene& scene) {
  const std::filesystem::path directory = absolute(scene.state).parent_path();
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) {
    return {Level::kNote, "state", fmt::format("{} does not exist yet", directory.string()),
            "the agent creates it (as root), or choose another state file"};
  }
  if (access(directory.c_str(), W_OK) != 0) {
    return {Level::kNote, "state",
            fmt::format("{} cannot be written by user {}", directory.string(), geteuid()),
            "run as root, or choose another state file"};
  }
  const auto space = std::filesystem::space(directory, ignored);
  constexpr std::uintmax_t kEnough = 1 << 20;
  if (!ignored && space.available < kEnough) {
    return {Level::kProblem, "state", fmt::format("the disk of {} is full", directory.string()),
            "free disk space: the agent leases no GPU while it cannot save its settings"};
  }
  if (!std::filesystem::exists(scene.state, ignored)) {
    return {Level::kGood, "state", fmt::format("{} can be written", directory.string()), ""};
  }
  const auto text = ReadFile(scene.state);
  const auto state =
      text ? ParseSavedState(*text, scene.state.string()) : Result<SavedState>(Fail(text));
  if (!state) return {Level::kProblem, "state", state.error().Message(), ""};
  if (!state->gpus.empty() && !HasAgent(scene)) {
    return {Level::kProblem, "state",
            fmt::format("{} GPUs have to be restored, but no agent runs", state->gpus.size()),
            scene.restore_command};
  }
  return {Level::kGood, "state", fmt::format("{} can be read and written", scene.state.string()),
          ""};
}

// A program that sets clocks or power limits itself.
struct OtherTool {
  const char* process;  // The kernel's name of the process, which has at most 15 letters.
  const char* what;
};
constexpr OtherTool kOtherTools[] = {
    {"nv-hostengine", "DCGM: enforces clocks and power limits if a configuration was set"},
    {"nvidia-powerd", "NVIDIA's dynamic boost"},
    {"zeusd", "Zeus' daemon, which sets clocks and power limits"},
    {"geopmd", "GEOPM's service, which sets clocks"},
    {"eard", "EAR's daemon, which sets clocks"},
    {"eargmd", "EAR's power manager, which sets power limits"},
};

std::vector<Finding> ExamineOtherTools(const DoctorScene& scene) {
  std::vector<Finding> findings;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(scene.root / "proc", error)) {
    auto name = ReadFile(entry.path() / "comm");
    if (!name) continue;
    while (!name->empty() && name->back() == '\n') name->pop_back();
    for (const OtherTool& tool : kOtherTools) {
      if (*name != tool.process) continue;
      findings.push_back({Level::kNote, "other tools",
                          fmt::format("{} runs (process {}): {}", tool.process,
                                      entry.path().filename().string(), tool.what),
                          "let one of the two set clocks"});
    }
  }
  if (findings.empty()) {
    findings.push_back({Level::kGood, "other tools", "no other program that sets clocks runs", ""});
  }
  return findings;
}

// Describes a GPU and what may prevent setting it. The remedy is the remedy of the worst finding.
Finding ExamineDevice(device::Device& device) {
  const device::DeviceInfo& info = device.info();
  Finding finding{Level::kGood, info.uuid, info.name, ""};
  const auto add = [&](Level level, const std::string& detail, const std::string& remedy) {
    finding.detail += "; " + detail;
    if (level > finding.level || finding.remedy.empty()) finding.remedy = remedy;
    finding.level = std::max(finding.level, level);
  };
  if (!info.sm_clocks_mhz.empty()) {
    finding.detail += fmt::format(", {} SM clocks from {} to {} MHz", info.sm_clocks_mhz.size(),
                                  info.sm_clocks_mhz.front(), info.sm_clocks_mhz.back());
  }
  const auto telemetry = device.Read();
  if (!telemetry) {
    add(Level::kProblem, telemetry.error().Message(), "nvidia-smi");
    return finding;
  }
  if (telemetry->power_w) finding.detail += fmt::format(", {:.0f} W", *telemetry->power_w);
  if (telemetry->temperature_c) finding.detail += fmt::format(", {} C", *telemetry->temperature_c);
  if (telemetry->sm_clock_mhz) finding.detail += fmt::format(", {} MHz", *telemetry->sm_clock_mhz);
  finding.detail += " now";
  if (const std::string energy = device::DescribeEnergy(*telemetry); !energy.empty()) {
    add(Level::kNote, energy, "");
  }
  device::ClockLimits limits = telemetry->limits;
  limits.bits &= ~(static_cast<unsigned>(device::ClockLimit::kIdle) |
                   static_cast<unsigned>(device::ClockLimit::kSetting));
  if (limits.bits != 0)
    add(Level::kNote, fmt::format("clock limited by: {}", device::Describe(limits)), "");
  if (info.is_persistent == false) {
    add(Level::kNote, "no persistence mode: settings are lost while no program uses the GPU",
        "sudo nvidia-smi -pm 1");
  }
  if (!info.measure_only.empty()) {
    add(Level::kProblem, fmt::format("can only be measured: {}", info.measure_only), "");
  }
  const auto clock = device.ReadSetting(device::Control::kSmClock);
  if (clock && !clock->is_known && !clock->hint.empty()) {
    add(clock->is_certain ? Level::kProblem : Level::kNote,
        fmt::format("{}, and the driver does not report the locked clocks", clock->hint),
        fmt::format("sudo nvidia-smi -i {0} -rgc, or perseus agent --rest {0}=MIN-MAX", info.uuid));
  } else if (clock && clock->is_known && clock->setting) {
    add(Level::kNote,
        fmt::format("locked to {}", device::Describe(device::Control::kSmClock, clock->setting)),
        "");
  }
  const auto power = device.ReadSetting(device::Control::kPowerLimit);
  if (power && power->is_known && power->setting) {
    add(Level::kNote,
        fmt::format("power limit {}, not the default {}",
                    device::Describe(device::Control::kPowerLimit, power->setting),
                    device::Describe(
                        device::Control::kPowerLimit,
                        device::Setting{info.default_power_limit_mw, info.default_power_limit_mw})),
        "");
  }
  return finding;
}

}  // namespace

std::vector<Finding> ExamineNode(const DoctorScene& scene) {
  std::vector<Finding> findings = {ExamineRights(scene), ExamineUsers(), ExamineKernel(),
                                   ExamineAgent(scene), ExamineState(scene)};
  for (Finding& finding : ExamineOtherTools(scene)) findings.push_back(std::move(finding));
  return findings;
}

std::vector<Finding> ExamineDevices(const Result<device::DeviceList>& devices) {
  if (!devices) return {{Level::kProblem, "driver", devices.error().Message(), ""}};
  std::vector<device::Device*> all;
  for (const auto& device : devices->devices) all.push_back(device.get());
  device::EndTrials(all, *devices->clock);
  std::vector<Finding> findings;
  for (const auto& device : devices->devices) findings.push_back(ExamineDevice(*device));
  for (const device::RefusedDevice& refused : devices->refused) {
    findings.push_back({Level::kProblem, refused.what, refused.why, ""});
  }
  if (findings.empty()) findings.push_back({Level::kProblem, "driver", "it has no GPU", ""});
  return findings;
}

}  // namespace perseus::agent
