// For tests of the agent: an agent in a thread, with two fake GPUs. Its clients are in this process
// and in other processes.
#pragma once

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/runtime/agent/agent.h"
#include "perseus/runtime/protocol/clock_channel/clock_channel.h"
#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"
#include "tests/support/fake_device.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {

inline constexpr std::chrono::milliseconds kReplyTimeout(10'000);

// A connection to the agent like that of a training process.
class Client {
 public:
  explicit Client(const std::filesystem::path& socket) : socket_(*protocol::Connect(socket)) {}

  protocol::Reply Ask(const protocol::Request& request) {
    return AskInWords(protocol::Format(request));
  }

  protocol::Reply AskInWords(const std::string& text) {
    auto answer = protocol::SendRequest(socket_.get(), text, kReplyTimeout);
    EXPECT_TRUE(answer) << answer.error().Message();
    if (!answer)
      return protocol::Refused{protocol::Refusal::kUnavailable, answer.error().Message()};
    if (!answer->descriptors.empty()) {
      publisher_.emplace(*protocol::ClockPublisher::Attach(std::move(answer->descriptors)));
    }
    return *protocol::ParseReply(answer->text);
  }

  // Returns the id of the lease, or the agent's refusal.
  std::string Acquire(const std::vector<std::string>& gpus, double heartbeat_s = 30) {
    const protocol::Reply reply = Ask(protocol::Acquire{gpus, "test", heartbeat_s});
    if (const auto* lease = std::get_if<protocol::Lease>(&reply)) return lease->id;
    return std::get<protocol::Refused>(reply).message;
  }

  protocol::GpuStatus StatusOf(const std::string& uuid) {
    const protocol::Reply reply = Ask(protocol::List{});
    for (const protocol::GpuStatus& gpu : std::get<protocol::Listing>(reply).gpus) {
      if (gpu.uuid == uuid) return gpu;
    }
    ADD_FAILURE() << "no " << uuid;
    return {};
  }

  bool HasEnded() {
    // The socket blocks, so Receive() returns only at the end of the connection.
    const auto received = protocol::Receive(socket_.get());
    return received && received->state == protocol::Received::kEnd;
  }

  protocol::ClockPublisher& publisher() { return *publisher_; }
  int socket() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  std::optional<protocol::ClockPublisher> publisher_;
};

// A process that is forked before the agent has threads. It runs its function on request. A child
// of a process with several threads must not allocate memory. A thread that the child does not have
// may hold the lock of the address sanitizer's allocator, and the child would wait for this lock
// forever.
class LaterProcess {
 public:
  explicit LaterProcess(const std::function<int()>& function) {
    EXPECT_EQ(pipe(go_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(go_[1]);  // The child ends when the test does.
    char byte = 0;
    _exit(read(go_[0], &byte, 1) == 1 ? function() : 127);
  }
  LaterProcess(const LaterProcess&) = delete;
  LaterProcess& operator=(const LaterProcess&) = delete;
  ~LaterProcess() {
    close(go_[0]);
    close(go_[1]);
  }
  // Waits for the process and returns its exit status.
  int Run() {
    EXPECT_EQ(write(go_[1], "g", 1), 1);
    int status = -1;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int go_[2] = {-1, -1};
  pid_t pid_ = 0;
};

class AgentTest : public testing::Test {
 protected:
  ~AgentTest() override { Stop(); }

  AgentOptions Options() {
    AgentOptions options;
    options.socket = socket();
    options.timeout = std::chrono::milliseconds(5000);
    options.gpus.devices.devices.push_back(a_.Open());
    options.gpus.devices.devices.push_back(b_.Open());
    options.gpus.state = state();
    options.gpus.boot_id = "11112222-boot";
    options.gpus.host = ThisHost();
    options.gpus.periods = {.observe_serving = std::chrono::milliseconds(1),
                            .observe_free = std::chrono::milliseconds(1),
                            .first_retry = std::chrono::milliseconds(1),
                            .last_retry = std::chrono::milliseconds(4)};
    return options;
  }

  void Start() { Start(Options()); }
  void Start(AgentOptions options) {
    auto agent = Agent::Start(std::move(options), log_);
    ASSERT_TRUE(agent) << agent.error().Message();
    agent_ = *std::move(agent);
    thread_ = std::thread([this] { result_ = agent_->Run(); });
  }
  template <typename Change>
  void StartWith(Change change) {
    AgentOptions options = Options();
    change(options);
    Start(std::move(options));
  }
  // Does the same as SIGTERM.
  void Stop() {
    if (!agent_) return;
    agent_->Stop();
    thread_.join();
    agent_.reset();
  }

  // Requests a clock for the client's first GPU, and waits until it is set.
  static void SetClock(Client& client, const FakeGpu& gpu, int mhz) {
    client.publisher().Publish(0, mhz);
    ASSERT_TRUE(Eventually([&] {
      return gpu.setting(device::Control::kSmClock) == device::Setting{mhz, mhz};
    }));
  }

  std::filesystem::path socket() const { return directory_ / "agent.sock"; }
  std::filesystem::path state() const { return directory_ / "state" / "agent.json"; }
  // Whether no setting of the agent is in effect, and the agent's state is empty.
  bool IsAllBack() const {
    return !a_.setting(device::Control::kSmClock) && !b_.setting(device::Control::kSmClock) &&
           ParseSavedState(*ReadFile(state()), "state")->gpus.empty();
  }

  // The text that the agent has logged. The agent's threads may log during this call.
  std::string Logged() const { return fmt::format("{}", fmt::join(sink_->last_formatted(), "")); }
  std::size_t CountLogged(std::string_view part) const {
    const auto lines = sink_->last_formatted();
    return static_cast<std::size_t>(std::ranges::count_if(
        lines, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }
  void ForgetLogged() { log_.sinks() = {sink_ = NewSink()}; }

  TemporaryDirectory directory_;
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ = NewSink();
  spdlog::logger log_{"test", sink_};
  FakeGpu a_{"GPU-a"};
  FakeGpu b_{"GPU-b"};
  std::unique_ptr<Agent> agent_;
  Result<void> result_;
  std::thread thread_;

 private:
  static std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> NewSink() {
    return std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(/*lines=*/1'000);
  }
};

}  // namespace perseus::agent
