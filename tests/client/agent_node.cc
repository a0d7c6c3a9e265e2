#include "tests/client/agent_node.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "perseus/base/file.h"
#include "perseus/base/process.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"
#include "tests/support/planned_pipeline.h"

namespace perseus {

AgentNodeTest::AgentNodeTest() {
  Write("node.toml",
        "name = \"box\"\ngpus = 8\n[gpu]\nmodel = \"a100-sxm\"\ncounter_period_ms = 20\n"
        "[switch_latency]\nmedian_ms = 1\n");
}

AgentNodeTest::~AgentNodeTest() {
  if (agent_ == 0) return;
  ::kill(agent_, SIGTERM);
  WaitFor(agent_);
}

void AgentNodeTest::StartAgent(const std::vector<std::string>& flags) {
  const std::string state = (directory_ / "agent.json").string();
  const std::string log = (directory_ / "agent.log").string();
  std::vector<std::string> words{PERSEUS_PROGRAM, "agent",   "--devices", devices(),   "--socket",
                                 socket(),        "--state", state,       "--metrics", "off"};
  words.insert(words.end(), flags.begin(), flags.end());
  // posix_spawn and not fork(), because this process may have the threads of a session.
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_EQ(::posix_spawn(&agent_, PERSEUS_PROGRAM, &actions, nullptr, ArgumentsOf(words).data(),
                          environ),
            0);
  ::posix_spawn_file_actions_destroy(&actions);
  ASSERT_TRUE(Comes([this] { return protocol::Connect(socket()).has_value(); }))
      << Read("agent.log");
}

void AgentNodeTest::KillAgent() {
  ::kill(agent_, SIGKILL);
  WaitFor(agent_);
  agent_ = 0;
}

std::optional<int> AgentNodeTest::Lock(int gpu) const {
  const auto node = virtual_gpu::VirtualNode::Open(directory_ / "node.toml");
  if (!node) return -1;
  const auto view = node->Look(gpu);
  if (!view) return -1;
  const auto& lock = view->reading.requested_lock;
  return lock ? std::optional<int>(lock->upper) : std::nullopt;
}

testing::AssertionResult AgentNodeTest::LockBecomes(int gpu, std::optional<int> clock_mhz) const {
  if (Comes([&] { return Lock(gpu) == clock_mhz; })) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "GPU " << gpu << " is locked to " << Lock(gpu).value_or(0)
                                     << " MHz, not to " << clock_mhz.value_or(0) << "\n"
                                     << Read("agent.log");
}

void AgentNodeTest::Write(const std::string& name, const std::string& text) const {
  const auto written = WriteFileAtomically(directory_ / name, text);
  ASSERT_TRUE(written) << written.error().Message();
}

std::string AgentNodeTest::Read(const std::string& name) const {
  return ReadFile(directory_ / name).value_or("");
}

std::string AgentNodeTest::RunProgram(std::vector<std::string> words) const {
  words.insert(words.begin(), PERSEUS_PROGRAM);
  const auto output = perseus::RunProgram(words, "");
  EXPECT_TRUE(output) << output.error().Message();
  return output.value_or("");
}

bool Comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

pid_t StartChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}

int WaitFor(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

// ---- A rank ----

RankSession::RankSession(const Place& place) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.dp_rank = place.dp_rank;
  options.pp_rank = place.pp_rank;
  options.gpu = place.gpu.c_str();
  options.agent = place.socket.c_str();
  options.devices = place.devices.c_str();
  options.plan = place.plan.c_str();
  options.job_directory = place.job_directory.c_str();
  options.plan_expires_at = place.plan_expires_at;
  options.flags = place.flags;
  session_ = perseus_open(&options);
}

void RankSession::Close() {
  perseus_close(session_);
  session_ = nullptr;
}

void RankSession::RunStep(int microbatches) {
  perseus_step_begin(session_);
  for (int i = 0; i < microbatches; ++i) Run(PERSEUS_FORWARD, i);
  for (int i = 0; i < microbatches; ++i) Run(PERSEUS_BACKWARD, i);
  perseus_step_end(session_);
}

perseus_counters RankSession::Counters() const {
  perseus_counters counters{};
  counters.size = sizeof counters;
  perseus_read_counters(session_, &counters);
  return counters;
}

std::string RankSession::Warnings() {
  std::string all;
  char line[1000];
  while (perseus_take_warning(session_, line, sizeof line) != 0) all += std::string(line) + "\n";
  return all;
}

plan_file::PlanFile PlanGpipe(int ranks, int microbatches) {
  return PlanPipeline({.name = "gpipe", .pp_ranks = ranks, .microbatches = microbatches});
}

}  // namespace perseus
