#include "tests/faults/node.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>
#include <variant>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/base/process.h"
#include "perseus/base/units.h"
#include "perseus/runtime/agent/saved_state_file.h"

namespace perseus::faults {
namespace {

namespace fs = std::filesystem;
using fake_nvml::ClockRange;
using fake_nvml::FakeNvml;

// The agent retries a restore after at most 5 s, and checks heartbeats every 250 ms. The remaining
// time is a reserve for a busy machine.
constexpr Nanoseconds kLongestSettling = 30 * kSecond;
constexpr std::int64_t kPollPeriodUs = 2000;

std::string InWords(const std::optional<ClockRange>& range) {
  return range ? fmt::format("{}-{}", range->lower, range->upper) : "none";
}
std::string InWords(const Hardware& hardware) {
  return fmt::format("SM lock {}, memory lock {}, {} mW", InWords(hardware.sm_lock),
                     InWords(hardware.memory_lock), hardware.power_limit_mw);
}

std::string EndInWords(int status) {
  return WIFSIGNALED(status) ? fmt::format("died of signal {}", WTERMSIG(status))
                             : fmt::format("ended with {}", WEXITSTATUS(status));
}

void SetMemoryLock(const FakeNvml& fake, int gpu, const std::optional<ClockRange>& range) {
  // Only this test sets a memory lock, so FakeNvml has no function for this.
  fake_nvml::MapNode(fake.path())->gpus[gpu].memory_lock =
      range ? fake_nvml::Range(static_cast<unsigned>(range->lower),
                               static_cast<unsigned>(range->upper))
            : 0;
}

}  // namespace

void Require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

Node::Node(int gpus, std::uint64_t seed, AgentEnvironment environment)
    : fake_(FakeNvml::Create(directory_ / "node", {.gpus = std::vector<fake_nvml::GpuSpec>(
                                                       static_cast<std::size_t>(gpus))})),
      environment_(std::move(environment)) {
  for (int gpu = 0; gpu < gpus; ++gpu) {
    Hardware hardware{.sm_lock = {}, .memory_lock = {}, .power_limit_mw = fake_.PowerLimit(gpu)};
    switch ((static_cast<std::uint64_t>(gpu) + seed) % 4) {
      case 0:
        hardware.sm_lock = ClockRange{1200, 1305};
        break;
      case 1:
        hardware.power_limit_mw = 300'000;
        break;
      case 2:
        hardware.memory_lock = ClockRange{810, 810};
        hardware.power_limit_mw = 250'000;
        break;
      default:
        break;
    }
    administrators_.push_back(hardware);
  }
  if (environment_.has_device_files) MakeVirtualGpus();
  SetAsAdministrator();
  ShiftWallClock(0);
  fs::create_directories(state().parent_path());
  if (environment_.has_small_disk && IsIsolated() &&
      mount("tmpfs", state().parent_path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    throw std::runtime_error("cannot mount a tmpfs for the small disk");
  }
}

Node::~Node() {
  agent_.Kill();
  if (environment_.has_small_disk && IsIsolated())
    umount2(state().parent_path().c_str(), MNT_DETACH);
}

void Node::MakeVirtualGpus() {
  const fs::path description = directory_ / "virtual.toml";
  std::ofstream(description) << fmt::format(
      "name = \"faults\"\ngpus = {}\nstate = \"virtual.state\"\ndevice_file = \"gpu{{}}\"\n"
      "[gpu]\nmodel = \"a100-sxm\"\nmemory_clocks_mhz = [810, 1215]\n",
      fake_.gpu_count());
  auto node = virtual_gpu::VirtualNode::Open(description);
  if (!node) throw std::runtime_error(node.error().Message());
  virtual_.emplace(*std::move(node));
  bool is_done = chmod(directory().c_str(), 0755) == 0;
  for (int gpu = 0; gpu < fake_.gpu_count(); ++gpu) {
    std::ofstream(device_file(gpu)) << "";
    is_done = is_done && chown(device_file(gpu).c_str(), 0, kGpuGroup) == 0 &&
              chmod(device_file(gpu).c_str(), 0660) == 0;
  }
  if (!is_done) throw std::runtime_error("cannot make the device files");
}

void Node::SetAsAdministrator() {
  expected_ = administrators_;
  for (int gpu = 0; gpu < fake_.gpu_count(); ++gpu) {
    Set(gpu, expected_[static_cast<std::size_t>(gpu)]);
  }
}

void Node::Set(int gpu, const Hardware& hardware) {
  if (!virtual_) {
    if (hardware.sm_lock) fake_.LockSm(gpu, *hardware.sm_lock);
    SetMemoryLock(fake_, gpu, hardware.memory_lock);
    fake_.SetPowerLimit(gpu, hardware.power_limit_mw);
    return;
  }
  const auto in_words = [](const std::optional<ClockRange>& range) {
    return range ? std::optional(device::Setting{range->lower, range->upper}) : std::nullopt;
  };
  const device::DeviceList list = virtual_->Devices();
  device::Device& gpu_device = *list.devices[static_cast<std::size_t>(gpu)];
  const int limit_mw = hardware.power_limit_mw;
  for (const auto& [control, setting] :
       {std::pair{device::Control::kSmClock, in_words(hardware.sm_lock)},
        std::pair{device::Control::kMemoryClock, in_words(hardware.memory_lock)},
        std::pair{device::Control::kPowerLimit,
                  std::optional(device::Setting{limit_mw, limit_mw})}}) {
    const auto applied = gpu_device.Apply(control, setting);
    if (!applied) throw std::runtime_error(applied.error().Message());
  }
}

// ---- The agent ----

void Node::ExecAgent() const {
  setenv("FAKE_NVML_FILE", fake_.path().c_str(), 1);
  if (environment_.has_clock_shim) {
    setenv("LD_PRELOAD", FAULTS_CLOCK_SHIM, 1);
    setenv("FAULTS_CLOCK_FILE", (directory_ / "clock").c_str(), 1);
    // In a sanitizer build, the sanitizer otherwise requires that it is the first library.
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  }
  if (environment_.has_old_kernel) {
    setenv("LD_PRELOAD", FAULTS_OLD_KERNEL_SHIM, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  }
  if (environment_.open_files) {
    const rlimit limit{*environment_.open_files, *environment_.open_files};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  // Because of this, the limit on file sizes makes writes fail, as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  const int log_file = open(log().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(log_file, STDERR_FILENO);
  close(log_file);
  const std::string devices = virtual_ ? "virtual:" + (directory_ / "virtual.toml").string()
                                       : std::string("nvml:") + FAKE_NVML_LIBRARY;
  std::vector<std::string> words = {PERSEUS_PROGRAM, "agent",  "--devices", devices,
                                    "--socket",      socket(), "--state",   state(),
                                    "--metrics",     "off"};
  // A virtual GPU reports its lock.
  for (int gpu = 0; !virtual_ && gpu < fake_.gpu_count(); ++gpu) {
    const auto& lock = administrators_[static_cast<std::size_t>(gpu)].sm_lock;
    if (!lock) continue;
    words.insert(words.end(), {"--rest", fake_.Uuid(gpu) + "=" + InWords(lock)});
  }
  execv(words[0].c_str(), ArgumentsOf(words).data());
  _exit(127);
}

void Node::LaunchAgent() {
  agent_ = Process::Start([this]() -> int { ExecAgent(); });
}

void Node::StartAgent() {
  LaunchAgent();
  const Nanoseconds begin = RealClock().Now();
  for (;;) {
    int status = 0;
    if (agent_.HasEnded(&status)) {
      throw Violation("the agent does not start: it " + EndInWords(status));
    }
    if (const auto client = Client::Connect(socket())) break;
    Require(RealClock().Now() - begin < kLongestSettling, "the agent does not begin to listen");
    SleepMicroseconds(500);
  }
  List();
  if (descriptors_when_new_ != 0) return;
  // Without clients, the number does not change after the connection of List() is closed.
  do {
    descriptors_when_new_ = Descriptors();
    SleepMicroseconds(20'000);
  } while (Descriptors() != descriptors_when_new_);
}

void Node::KillAgent() { agent_.Kill(); }

void Node::StopAgent() {
  agent_.Send(SIGTERM);
  const Nanoseconds begin = RealClock().Now();
  int status = 0;
  while (!agent_.HasEnded(&status)) {
    Require(RealClock().Now() - begin < kLongestSettling, "the agent does not end after SIGTERM");
    SleepMicroseconds(kPollPeriodUs);
  }
  Require(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "after SIGTERM the agent " + EndInWords(status));
}

// ---- The node ----

std::vector<std::string> Node::uuids() const {
  std::vector<std::string> all;
  for (int gpu = 0; gpu < fake_.gpu_count(); ++gpu) {
    all.push_back(virtual_ ? virtual_gpu::VirtualUuid(virtual_->spec(), gpu) : fake_.Uuid(gpu));
  }
  return all;
}

fs::path Node::device_file(int gpu) const {
  return virtual_gpu::DeviceFileOf(virtual_->spec(), gpu);
}

Hardware Node::Now(int gpu) const {
  if (virtual_) {
    const auto view = virtual_->Look(gpu);
    if (!view) throw std::runtime_error(view.error().Message());
    const auto range = [](const std::optional<device::Setting>& setting) {
      return setting ? std::optional(ClockRange{setting->lower, setting->upper}) : std::nullopt;
    };
    const virtual_gpu::VirtualGpuReading& reading = view->reading;
    return {range(reading.requested_lock), range(reading.memory_lock),
            reading.power_limit ? reading.power_limit->upper
                                : virtual_->spec().gpu.default_power_limit_mw};
  }
  return {fake_.SmLock(gpu), fake_.MemoryLock(gpu), fake_.PowerLimit(gpu)};
}

bool Node::IsChanged() const {
  for (int gpu = 0; gpu < fake_.gpu_count(); ++gpu) {
    if (Now(gpu) != expected_[static_cast<std::size_t>(gpu)]) return true;
  }
  return false;
}

protocol::Listing Node::List() const {
  auto client = Client::Connect(socket());
  Require(client.has_value(), "the agent accepts no connection");
  const auto reply = client->Send(protocol::List{});
  Require(reply.has_value(), "the agent does not answer");
  Require(std::holds_alternative<protocol::Listing>(*reply), "the agent refuses to list its GPUs");
  return std::get<protocol::Listing>(*reply);
}

void Node::ShiftWallClock(std::int64_t seconds) {
  const int file = open((directory_ / "clock").c_str(), O_RDWR | O_CREAT, 0644);
  if (pwrite(file, &seconds, sizeof seconds, 0) != sizeof seconds) {
    throw std::runtime_error("cannot write the clock's file");
  }
  close(file);
}

long Node::OwnMemory() const {
  std::ifstream status(fmt::format("/proc/{}/status", agent_.pid()));
  std::string word;
  while (status >> word) {
    if (word != "RssAnon:") continue;
    long kilobytes = 0;
    status >> kilobytes;
    return kilobytes;
  }
  return 0;
}

std::size_t Node::Descriptors() const {
  std::error_code ignored;
  const fs::directory_iterator entries(fmt::format("/proc/{}/fd", agent_.pid()), ignored);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

// ---- Requirements ----

std::string Node::HardwareProblem() const {
  for (int gpu = 0; gpu < fake_.gpu_count(); ++gpu) {
    const Hardware& expected = expected_[static_cast<std::size_t>(gpu)];
    if (const Hardware now = Now(gpu); now != expected) {
      return fmt::format("GPU {} ({}) has {}, but must have {}", gpu,
                         uuids()[static_cast<std::size_t>(gpu)], InWords(now), InWords(expected));
    }
  }
  return {};
}

std::string Node::StateProblem() const {
  if (!fs::exists(state())) return {};  // The agent creates the file when it first saves something.
  const auto text = ReadFile(state());
  if (!text) return text.error().Message();
  const auto saved = agent::ParseSavedState(*text, "state");
  if (!saved) return saved.error().Message();
  if (!saved->gpus.empty()) return "the state still contains the GPU " + saved->gpus.begin()->first;
  return {};
}

std::string Node::FileProblem() const {
  std::set<std::string> known = {"agent.sock", "agent.log",       "node", "clock", "state",
                                 "agent.json", "agent.json.lock", "fill"};
  if (virtual_) known.insert({"virtual.toml", "virtual.state", "fuse", "fuse-device"});
  for (int gpu = 0; virtual_ && gpu < fake_.gpu_count(); ++gpu) {
    known.insert(device_file(gpu).filename());
  }
  for (const fs::path& directory : {directory(), state().parent_path()}) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (!known.contains(entry.path().filename()))
        return "left-over file: " + entry.path().string();
    }
  }
  return {};
}

std::string Node::AgentProblem(std::size_t connections) {
  for (const protocol::GpuStatus& gpu : List().gpus) {
    if (!gpu.lease.empty()) {
      return fmt::format("{} is {} {} ({})", gpu.uuid,
                         gpu.is_restoring ? "being restored after" : "held by", gpu.lease,
                         gpu.trouble);
    }
  }
  // Each connection needs two descriptors: its socket and the client's process.
  const std::size_t most = descriptors_when_new_ + 2 * connections;
  if (const std::size_t now = Descriptors(); now > most) {
    return fmt::format("the agent has {} descriptors, at most {} are expected", now, most);
  }
  return {};
}

std::string Node::FirstProblem(std::size_t connections) {
  int status = 0;
  if (agent_.HasEnded(&status)) throw Violation("the agent " + EndInWords(status));
  for (const auto& check : {&Node::HardwareProblem, &Node::StateProblem, &Node::FileProblem}) {
    if (std::string problem = (this->*check)(); !problem.empty()) return problem;
  }
  return AgentProblem(connections);
}

void Node::Settle(std::size_t connections) {
  const Nanoseconds begin = RealClock().Now();
  for (;;) {
    const std::string problem = FirstProblem(connections);
    if (problem.empty()) return;
    if (RealClock().Now() - begin > kLongestSettling) {
      throw Violation(fmt::format("after {} s: {}", kLongestSettling / kSecond, problem));
    }
    SleepMicroseconds(kPollPeriodUs);
  }
}

void Node::RequireAllRestored() {
  for (const auto& check : {&Node::HardwareProblem, &Node::StateProblem, &Node::FileProblem}) {
    const std::string problem = (this->*check)();
    Require(problem.empty(), problem);
  }
}

}  // namespace perseus::faults
