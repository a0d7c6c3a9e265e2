// Tests `perseus qualify` as a process on a fake NVML. The fake shows whether the clocks are
// restored. Also tests what verbs do with facts.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>

#include "tests/cli/program.h"
#include "tests/fake_nvml/fake_nvml.h"

namespace perseus {
namespace {

using fake_nvml::FakeNvml;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFacts = PERSEUS_SOURCE_DIR "/examples/hardware-facts.toml";

class QualifyVerbTest : public CommandTest {
 protected:
  // The flags for the GPUs of the fake NVML, and for files of an agent that does not run.
  static std::string OnFakeGpus() {
    return std::string("--devices nvml:") + FAKE_NVML_LIBRARY +
           " --socket none.sock --state state/agent.json ";
  }
  // Starts the program in the background.
  pid_t Start(const std::string& arguments) const {
    return std::stoi(RunWell(arguments + " >out 2>err & echo $!"));
  }
  static void End(pid_t process, int signal) {
    kill(process, signal);
    EXPECT_TRUE(Comes([&] { return HasEnded(process); }));
  }
};

// Without CUDA, only the driver's own readings are measured. This takes seconds.
TEST_F(QualifyVerbTest, WritesFactsThatAPlanReads) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}, {}}});
  node.UseInThisProcess();
  setenv("PERSEUS_CUDA_LIBRARY", "/none", 1);
  const Outcome qualified =
      RunProcess("qualify " + OnFakeGpus() + "--no-clocks --duration 10 -o mine.toml");
  unsetenv("PERSEUS_CUDA_LIBRARY");
  EXPECT_EQ(qualified.status, 0) << qualified.err;
  EXPECT_THAT(qualified.out, AllOf(HasSubstr("2 x Fake A100, driver "), HasSubstr("limit: "),
                                   HasSubstr("\nwrote mine.toml\n")));
  EXPECT_TRUE(node.Changes().empty());
  EXPECT_THAT(Read("mine.toml"), AllOf(HasSubstr("gpu_count = 2\n"), HasSubstr("[[power]]"),
                                       Not(HasSubstr("[[switch]]"))));
  RunWell("synth --gpu a100 --stages 4 -o profile.csv");
  EXPECT_THAT(OneLine(RunWell("plan profile.csv --schedule 1f1b --microbatches 2 "
                              "--blocking-power 70 --no-frontier --facts mine.toml")),
              HasSubstr("hardware facts: mine.toml gives no blocking power, switch latency or"));
}

TEST_F(QualifyVerbTest, PlansNameTheFactsThatTheyUse) {
  Write("facts.toml", ReadFile(kFacts).value());
  RunWell("synth --gpu a100 --stages 4 -o profile.csv");
  const std::string plan = "plan profile.csv --schedule 1f1b --microbatches 2 --facts facts.toml ";
  const std::string both = OneLine(RunWell(plan + "-o out"));
  EXPECT_THAT(both, AllOf(HasSubstr("hardware facts: facts.toml gives the blocking power ("),
                          HasSubstr(" W), the switch latency ("),
                          HasSubstr(" ms), the switch cost (0.11 ms) ")));
  EXPECT_EQ(
      nlohmann::json::parse(Read("out/plans/no-slowdown.json"))["job"]["switch_cost"]["stall_s"],
      0.00011);
  EXPECT_THAT(RunWell(plan + "--blocking-power 70"),
              HasSubstr("hardware facts: facts.toml gives the switch latency ("));
  EXPECT_THAT(RunWell(plan + "--blocking-power 70 --switch-latency 5"),
              HasSubstr("hardware facts: facts.toml gives the switch cost (0.11 ms)\n"));
  EXPECT_THAT(RunWell(plan + "--blocking-power 70 --switch-latency 5 --switch-cost 0"),
              HasSubstr("hardware facts: facts.toml gives no blocking power, switch latency or"));
  EXPECT_THAT(RunWell(plan + "--json"), HasSubstr("\"facts\": \"facts.toml\""));
  const std::string evaluate = "evaluate out/plans/no-slowdown.json ";
  EXPECT_THAT(RunWell(evaluate + "--facts facts.toml"),
              HasSubstr("hardware facts: facts.toml gives the blocking power ("));
  EXPECT_THAT(RunWell(evaluate), Not(HasSubstr("hardware facts")));
  for (const std::string verb : {"compare", "emulate"}) {
    const std::string job = verb + " profile.csv --schedule 1f1b --microbatches 2 ";
    EXPECT_THAT(RunWell(job + "--facts facts.toml"),
                HasSubstr("hardware facts: facts.toml gives the blocking power ("));
    EXPECT_EQ(RunJson(job + "--facts facts.toml")["facts"], "facts.toml");
    EXPECT_FALSE(RunJson(job + "--blocking-power 70").contains("facts"));
  }
}

TEST_F(QualifyVerbTest, APartitionTakesTheBlockingPowerOfFacts) {
  std::string facts = ReadFile(kFacts).value();
  Write("facts.toml", facts);
  const std::string partition =
      "partition " PERSEUS_SOURCE_DIR "/examples/gpt-layers.csv --stages 4 --microbatches 8 ";
  EXPECT_THAT(RunWell(partition + "--facts facts.toml -o stages.csv"),
              AllOf(HasSubstr("hardware facts: facts.toml gives the blocking power ("),
                    HasSubstr("--blocking-power ")));
  EXPECT_EQ(RunJson(partition + "--facts facts.toml")["facts"], "facts.toml");
  EXPECT_THAT(RunWell(partition + "--facts facts.toml --blocking-power 70"),
              Not(HasSubstr("hardware facts")));
  ExpectComplaint(Run(partition), 2, "the blocking power is missing");
  for (std::size_t line; (line = facts.find("blocked_w")) != std::string::npos;) {
    facts.erase(line, facts.find('\n', line) + 1 - line);
  }
  Write("less.toml", facts);
  ExpectComplaint(Run(partition + "--facts less.toml"), 2, "has no blocked_w");
}

TEST_F(QualifyVerbTest, BusyGpusAreRefused) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}, {}}});
  node.UseInThisProcess();
  node.SetPrograms(1, {4242});
  const std::string qualify = "qualify " + OnFakeGpus();
  ExpectComplaint(RunProcess(qualify), 1,
                  "the GPUs are busy: process 4242 runs on " + node.Uuid(1) + " (measure without");
  EXPECT_TRUE(node.Changes().empty());
  // The other GPU can be measured. With --force, all GPUs are measured.
  for (const std::string& which : {"--gpu " + node.Uuid(0), std::string("--force")}) {
    const pid_t process = Start(qualify + which);
    EXPECT_TRUE(Comes([&] { return node.SmLock(0).has_value(); })) << which << ": " << Read("err");
    End(process, SIGTERM);
    EXPECT_TRUE(node.IsAsShipped(0)) << which;
  }
}

TEST_F(QualifyVerbTest, RefusalsHaveCauseAndRemedy) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}}});
  node.UseInThisProcess();
  const std::string qualify = "qualify " + OnFakeGpus();
  ExpectComplaint(RunProcess(qualify + "--gpu GPU-none"), 2,
                  "no usable GPU GPU-none (its GPUs: " + node.Uuid(0) + ")");
  ExpectComplaint(Run("qualify --devices virtual:node.toml"), 2, "real GPUs");
  ExpectComplaint(Run("qualify --devices nvml:/nowhere.so --socket none.sock"), 1,
                  "install NVIDIA's driver");
  ExpectComplaint(Run(qualify + "--duration 1"), 2, "--duration");
  // The kernel that loads the GPU would end before its power is measured.
  ExpectComplaint(Run(qualify + "--duration 7200"), 2, "--duration");
  EXPECT_THAT(Files("."), Not(::testing::Contains("facts.toml")));
}

TEST_F(QualifyVerbTest, ASignalEndsItAndTheClocksComeBack) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}, {}}});
  node.UseInThisProcess();
  const pid_t process = Start("qualify " + OnFakeGpus());
  EXPECT_TRUE(Comes([&] { return node.SmLock(0) && node.SmLock(1); })) << Read("err");
  EXPECT_THAT(Read("state/agent.json"), HasSubstr("perseus qualify"));
  End(process, SIGTERM);
  EXPECT_TRUE(node.IsAsShipped(0));
  EXPECT_TRUE(node.IsAsShipped(1));
  EXPECT_THAT(Read("err"), HasSubstr("interrupted"));
  EXPECT_THAT(Read("state/agent.json"), Not(HasSubstr("perseus qualify")));
  EXPECT_THAT(Files("."), Not(::testing::Contains("facts.toml")));
}

TEST_F(QualifyVerbTest, AfterAKillTheNextRestoreGivesTheClocksBack) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}}});
  node.UseInThisProcess();
  const pid_t process = Start("qualify " + OnFakeGpus());
  EXPECT_TRUE(Comes([&] { return node.SmLock(0).has_value(); })) << Read("err");
  End(process, SIGKILL);
  EXPECT_FALSE(node.IsAsShipped(0));
  const Outcome restored = RunProcess("gpu restore " + OnFakeGpus());
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_THAT(restored.err, HasSubstr("which lease guard (\"perseus qualify\") left changed"));
  EXPECT_TRUE(node.IsAsShipped(0));
}

}  // namespace
}  // namespace perseus
