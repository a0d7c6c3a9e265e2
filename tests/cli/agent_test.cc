// Tests `perseus agent`, `perseus gpu` and `perseus doctor` on virtual GPUs, with real agents.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kDevices = " --devices virtual:node.toml ";
constexpr const char* kWhere = " --socket agent.sock ";

class AgentProgramTest : public CommandTest {
 protected:
  AgentProgramTest() {
    Write("node.toml", "name = \"box\"\ngpus = 2\n[gpu]\nmodel = \"a100-sxm\"\n");
  }
  ~AgentProgramTest() override { StopAgent(); }

  // The shell prints the process number of the agent and leaves the agent running.
  void StartAgent(const std::string& flags = " --metrics off ") {
    const std::string started = RunWell(std::string("agent") + kDevices + kWhere +
                                        " --state agent.json " + flags + " 2>log & echo $!");
    agent_ = std::stoi(started);
    const auto is_up = [&] { return Run(std::string("gpu list") + kWhere).status == 0; };
    ASSERT_TRUE(Comes(is_up)) << Read("log");
  }
  // Returns whether the agent ended in time.
  bool StopAgent() {
    if (agent_ == 0) return true;
    // A test may have stopped the agent. SIGCONT comes first, because it also discards the SIGSTOP
    // with which the leak check attaches to the process at its end. Otherwise this check would wait
    // forever.
    kill(agent_, SIGCONT);
    kill(agent_, SIGTERM);
    const bool has_ended = Comes([&] { return HasEnded(agent_); });
    agent_ = 0;
    return has_ended;
  }
  nlohmann::json List() const { return RunJson(std::string("gpu list --json") + kWhere); }

  pid_t agent_ = 0;
};

TEST_F(AgentProgramTest, ListsItsGpusAndEndsWithSigterm) {
  StartAgent();
  const nlohmann::json listing = List();
  ASSERT_EQ(listing.at("gpus").size(), 2U);
  EXPECT_EQ(listing.at("gpus").at(0).at("uuid"), "GPU-virtual-box-0");
  EXPECT_EQ(listing.at("gpus").at(0).at("lease"), "");
  const std::string table = RunWell(std::string("gpu list") + kWhere);
  EXPECT_THAT(table, ContainsRegex("GPU-virtual-box-1 +free"));
  ExpectNarrowOutput(table, 1);
  EXPECT_TRUE(StopAgent());
  EXPECT_THAT(Read("log"), HasSubstr("all GPUs are restored"));
}

TEST_F(AgentProgramTest, EndsByItselfWithoutClients) {
  // The agent must end without a signal.
  EXPECT_EQ(Run(std::string("agent") + kDevices + kWhere +
                " --state agent.json --metrics off --exit-when-idle 0.5 2>log")
                .status,
            0);
  EXPECT_THAT(Read("log"), HasSubstr("all GPUs are restored"));
}

TEST_F(AgentProgramTest, MetricsAreValidForPrometheus) {
  StartAgent(" --metrics 127.0.0.1:0 --log-level debug ");
  const std::string log = Read("log");
  const std::size_t at = log.find("metrics on 127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << log;
  const std::string port = log.substr(at + 21, log.find('\n', at) - at - 21);
  // Bash has its own sockets, so this needs no other program.
  Write("scrape", "exec 3<>/dev/tcp/127.0.0.1/" + port +
                      "; printf 'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; "
                      "sed '1,/^\\r$/d' <&3 >metrics\n");
  RunWell("--version; bash scrape");
  const std::string metrics = Read("metrics");
  EXPECT_THAT(metrics, HasSubstr("DCGM_FI_DEV_POWER_USAGE{"));
  EXPECT_THAT(metrics, HasSubstr("perseus_gpu_up{"));
  EXPECT_THAT(metrics, HasSubstr("UUID=\"GPU-virtual-box-1\""));
  EXPECT_THAT(metrics, HasSubstr("perseus_gpu_request_to_driver_seconds_bucket{"));
  // The status would be 3 for a warning of the linter, and 1 for an error of the parser.
  RunWell("--version; promtool check metrics <metrics");
}

TEST_F(AgentProgramTest, ARefusalIsOneLine) {
  StartAgent();
  const std::string gpu = std::string("gpu ");
  ExpectComplaint(Run(gpu + "release GPU-none" + kWhere), 2,
                  "the agent refuses: this node has no GPU GPU-none (see perseus gpu list)");
  ExpectComplaint(Run(gpu + "grant GPU-virtual-box-0" + kWhere), 2, "add either");
  ExpectComplaint(Run(gpu + "revoke GPU-virtual-box-0 --uid 7" + kWhere), 2, "the agent refuses");
  ExpectComplaint(Run(gpu + "restore --state agent.json" + kDevices + kWhere), 2,
                  "an agent runs on");
}

// The lock of the state records where the agent listens. The default socket does not exist in this
// test.
TEST_F(AgentProgramTest, RestoreWithoutSocketEndsNoAgentThatAnswers) {
  StartAgent();
  for (const std::string& devices : {std::string(kDevices), std::string()}) {
    ExpectComplaint(Run("gpu restore --state agent.json" + devices), 2, "an agent runs on");
  }
  List();
}

TEST_F(AgentProgramTest, RestoreOpensTheGpusBeforeItKillsAnAgent) {
  StartAgent();
  // After this command, the agent has saved its state.
  RunWell(std::string("gpu grant 0 --uid 7") + kWhere);
  ASSERT_EQ(kill(agent_, SIGSTOP), 0);
  EXPECT_EQ(Run("gpu restore --state agent.json --devices nvml:/nowhere.so").status, 1);
  EXPECT_FALSE(HasEnded(agent_));
  const Outcome restored = Run(std::string("gpu restore --state agent.json") + kDevices);
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_THAT(restored.err, HasSubstr("does not answer: killing it"));
  EXPECT_TRUE(Comes([this] { return HasEnded(agent_); }));
  agent_ = 0;
}

TEST_F(AgentProgramTest, DoctorRepeatsItsFlagsInTheCommandThatRestores) {
  Write("agent.json", R"({"format": "perseus-agent-state", "version": 1, "boot_id": "b", "gpus": [
    {"uuid": "GPU-virtual-box-0", "lease": "7",
     "owner": {"pid": 1, "process_started": 1, "uid": 0, "job": "j"},
     "controls": {"sm_clock": {"before": "default", "changed": true}}}],
    "grants": [], "resting": []})");
  const Outcome outcome = Run(std::string("doctor --state agent.json") + kDevices + kWhere);
  EXPECT_THAT(outcome.out, HasSubstr("perseus gpu restore --devices virtual:node.toml --socket "
                                     "agent.sock --state agent.json\n"));
}

// The number is in the first column of the list.
TEST_F(AgentProgramTest, AGpuHasANumber) {
  StartAgent();
  const std::string grantee = std::string(" --uid 4242") + kWhere;
  RunWell("gpu grant 1" + grantee);
  RunWell("gpu revoke GPU-virtual-box-1" + grantee);
  ExpectComplaint(Run(std::string("gpu release 1") + kWhere), 2,
                  "no lease holds \"GPU-virtual-box-1\"");
  for (const char* command : {"gpu release 2", "gpu grant 2 --uid 7", "gpu revoke 2 --uid 7"}) {
    ExpectComplaint(Run(std::string(command) + kWhere), 2,
                    "this node has no GPU with the number 2 (perseus gpu list shows them)");
  }
}

TEST_F(AgentProgramTest, GrantsSurviveTheAgent) {
  StartAgent();
  const std::string grantee = std::string("GPU-virtual-box-0 --uid 4242") + kWhere;
  RunWell("gpu grant " + grantee);
  EXPECT_TRUE(StopAgent());
  StartAgent();
  RunWell("gpu revoke " + grantee);
  ExpectComplaint(Run("gpu revoke " + grantee), 2, "the agent refuses");
}

TEST_F(AgentProgramTest, BadFlagsAndStateFilesAreErrorsAtTheStart) {
  ExpectComplaint(Run(std::string("agent --devices cuda") + kWhere), 2, "is no kind of GPU");
  ExpectComplaint(Run(std::string("agent --rest GPU-a=1200") + kDevices + kWhere), 2,
                  "is not a GPU and its clocks");
  const std::string quiet = std::string("agent --log-level error --metrics off --state new.json") +
                            kDevices + kWhere + "--rest ";
  ExpectComplaint(Run(quiet + "GPU-nope=210-1200"), 2, "this node has no GPU GPU-nope");
  ExpectComplaint(Run(quiet + "GPU-virtual-box-0=211-1201"), 2, "has no SM clock of 211 MHz");
  EXPECT_FALSE(std::filesystem::exists(Directory() / "new.json"));
  // The error is one line, which does not promise another attempt.
  ExpectComplaint(Run(std::string("agent --log-level error --metrics localhost:29836") +
                      " --state new.json" + kDevices + kWhere),
                  2, "is not an address");
  Write("agent.json", "{\"format\": \"perseus-agent-state\"");
  const Outcome damaged =
      Run(std::string("agent --metrics off --state agent.json") + kDevices + kWhere);
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.err, HasSubstr("agent.json"));
  Write("other.toml", "name = \"box\"\ngpus = 0\n");
  const Outcome none = Run(std::string("agent --devices virtual:other.toml") + kWhere);
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("other.toml:2"));
}

constexpr const char* kFactsHeader =
    "format = \"perseus-hardware-facts\"\nversion = 1\nhost = \"box\"\ngpu_name = \"A100\"\n"
    "driver_version = \"1\"\nmeasured_at = \"2026-02-22T17:05:00Z\"\nperseus_version = \"0.1.0\"\n"
    "gpu_count = 2\n";

TEST_F(AgentProgramTest, TheLimitOnChangesComesFromTheFactsUnlessAFlagHasIt) {
  Write("facts.toml", std::string(kFactsHeader) +
                          "max_changes_per_s = {value = 80, low = 80, high = 160, samples = 9}\n");
  Write("none.toml", kFactsHeader);
  StartAgent(" --metrics off --facts facts.toml ");
  EXPECT_THAT(Read("log"), HasSubstr("at most 80 clock changes per second"));
  EXPECT_EQ(List().at("gpus").at(0).at("postponed"), 0);
  EXPECT_EQ(List().at("gpus").at(0).at("most_changes_per_s"), 0) << "no lease";
  EXPECT_TRUE(StopAgent());
  StartAgent(" --metrics off --facts none.toml --max-changes 7.5 ");
  EXPECT_THAT(Read("log"), HasSubstr("at most 7.5 clock changes per second"));
  EXPECT_TRUE(StopAgent());
  StartAgent();
  EXPECT_THAT(Read("log"), Not(HasSubstr("clock changes per second")));
}

TEST_F(AgentProgramTest, ABadLimitOnChangesIsAnErrorAtTheStart) {
  const std::string agent =
      std::string("agent --metrics off --state agent.json") + kDevices + kWhere;
  ExpectComplaint(Run(agent + "--max-changes 0"), 2, "--max-changes");
  ExpectComplaint(Run(agent + "--max-changes nan"), 2, "\"nan\" is not a number");
  Write("none.toml", kFactsHeader);
  Write("zero.toml", std::string(kFactsHeader) +
                         "max_changes_per_s = {value = 0, low = 0, high = 10, samples = 9}\n");
  ExpectComplaint(Run(agent + "--facts none.toml"), 2,
                  "none.toml: it has no max_changes_per_s, so it sets no limit");
  ExpectComplaint(
      Run(agent + "--facts zero.toml"), 2,
      "zero.toml: max_changes_per_s is 0, because no tried rate was shown to be harmless");
  ExpectComplaint(Run(agent + "--facts nowhere.toml"), 2, "nowhere.toml");
  // The file is read even if the flag wins, so a wrong path does not go unnoticed.
  ExpectComplaint(Run(agent + "--facts nowhere.toml --max-changes 5"), 2, "nowhere.toml");
  EXPECT_FALSE(std::filesystem::exists(Directory() / "agent.json"));
}

TEST_F(AgentProgramTest, WithoutAnAgentTheErrorNamesTheRemedy) {
  ExpectComplaint(Run(std::string("gpu list") + kWhere), 1, "is the agent running");
}

TEST_F(AgentProgramTest, DoctorDescribesTheNodeAndFailsOnlyOnProblems) {
  const std::string doctor = std::string("doctor --state agent.json") + kDevices + kWhere;
  const std::string screen = RunWell(doctor);
  EXPECT_THAT(screen, HasSubstr("GPU-virtual-box-0: Virtual a100-sxm, 81 SM clocks"));
  const std::string start =
      "-> perseus agent --devices virtual:node.toml --socket agent.sock --state agent.json\n";
  EXPECT_THAT(screen, HasSubstr(start)) << "the unit has another socket";
  ::setenv("PERSEUS_AGENT", "agent.sock", 1);
  EXPECT_THAT(RunWell(std::string("doctor --state agent.json") + kDevices), HasSubstr(start));
  ::unsetenv("PERSEUS_AGENT");
  EXPECT_THAT(screen, Not(HasSubstr("PROBLEM")));
  const nlohmann::json findings = RunJson(doctor + " --json");
  EXPECT_EQ(findings.at("format"), "perseus-doctor");
  const Outcome none =
      Run(std::string("doctor --devices nvml:/nowhere.so --state agent.json") + kWhere);
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.out, HasSubstr("PROBLEM  driver"));
  EXPECT_THAT(none.err, HasSubstr("1 problem (see above)"));
}

}  // namespace
}  // namespace perseus
