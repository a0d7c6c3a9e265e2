// Tests `perseus qualify` as a process: on virtual GPUs, and on a fake NVML that shows whether the
// clocks are given back.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>

#include "perseus/base/file.h"
#include "tests/cli/program.h"
#include "tests/fake_nvml/fake_nvml.h"

namespace perseus {
namespace {

using fake_nvml::FakeNvml;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kVirtual = "qualify --devices virtual:node.toml --duration 20 ";

class QualifyVerbTest : public ProgramTest {
 protected:
  QualifyVerbTest() { WriteNode(1); }
  void WriteNode(int latency_factor) const {
    Write("node.toml", "name = \"box\"\ngpus = 2\n[gpu]\nmodel = \"a100-sxm\"\n" +
                           std::string("[switch_latency]\nmedian_ms = ") +
                           std::to_string(10 * latency_factor) +
                           "\n[driver]\nholds_collective_ms = 4\n");
  }
  static bool Comes(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  // The process is a child of the shell, so it may remain a zombie.
  static bool HasEnded(pid_t process) {
    const auto stat = ReadFile("/proc/" + std::to_string(process) + "/stat");
    return !stat || stat->find(") Z ") != std::string::npos;
  }
};

TEST_F(QualifyVerbTest, WritesFactsThatAPlanReads) {
  EXPECT_THAT(RunWell(std::string(kVirtual) + "--figure facts.svg"),
              AllOf(HasSubstr("2 x Virtual a100-sxm"), HasSubstr("far, up"),
                    HasSubstr("wrote facts.toml and facts.svg")));
  EXPECT_THAT(Read("facts.toml"), AllOf(HasSubstr("[[switch]]"), HasSubstr("[energy_counter]"),
                                        HasSubstr("max_changes_per_s = ")));
  EXPECT_THAT(Read("facts.svg"), HasSubstr("</svg>"));
  RunWell(std::string(kVirtual) + "--no-clocks -o less.toml");
  EXPECT_THAT(Read("less.toml"), AllOf(Not(HasSubstr("[[switch]]")), HasSubstr("[[power]]")));
}

TEST_F(QualifyVerbTest, MergeNamesTheNodesThatDiffer) {
  std::string files;
  for (int i = 0; i < 4; ++i) {
    WriteNode(i == 3 ? 10 : 1);
    const std::string file = "node-" + std::to_string(i) + ".toml";
    RunWell(std::string(kVirtual) + "-o " + file);
    std::string facts = Read(file);
    facts.replace(facts.find("\"box\""), 5, "\"node-" + std::to_string(i) + "\"");
    Write(file, facts);
    files += " " + file;
  }
  EXPECT_THAT(RunWell("qualify -o merged.toml --merge" + files), HasSubstr("node-3"));
  EXPECT_THAT(Read("merged.toml"), HasSubstr("nodes = 4"));
}

TEST_F(QualifyVerbTest, RefusalsHaveCauseAndRemedy) {
  ExpectComplaint(Run(std::string(kVirtual) + "--gpu GPU-none"), 2,
                  "no usable GPU GPU-none (its GPUs: GPU-virtual-box-0, GPU-virtual-box-1)");
  ExpectComplaint(Run("qualify --devices nvml:/nowhere.so --socket none.sock"), 1,
                  "install NVIDIA's driver");
  ExpectComplaint(Run("qualify --devices virtual:node.toml --duration 1"), 2, "--duration");
  // The kernel that loads the GPU would end before its power is measured.
  ExpectComplaint(Run("qualify --devices virtual:node.toml --duration 7200"), 2, "--duration");
  EXPECT_THAT(Files("."), ElementsAre("node.toml"));
}

TEST_F(QualifyVerbTest, ASignalEndsItAndTheClocksComeBack) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}, {}}});
  node.UseInThisProcess();
  const std::string started =
      RunWell(std::string("qualify --devices nvml:") + FAKE_NVML_LIBRARY +
              " --socket none.sock --state state/agent.json >out 2>err & echo $!");
  const pid_t process = std::stoi(started);
  EXPECT_TRUE(Comes([&] { return node.SmLock(0) && node.SmLock(1); })) << Read("err");
  EXPECT_THAT(Read("state/agent.json"), HasSubstr("perseus qualify"));
  kill(process, SIGTERM);
  EXPECT_TRUE(Comes([&] { return HasEnded(process); }));
  EXPECT_TRUE(node.IsAsShipped(0));
  EXPECT_TRUE(node.IsAsShipped(1));
  EXPECT_THAT(Read("err"), HasSubstr("interrupted"));
  EXPECT_THAT(Read("state/agent.json"), Not(HasSubstr("perseus qualify")));
  EXPECT_THAT(Files("."), Not(::testing::Contains("facts.toml")));
}

TEST_F(QualifyVerbTest, AfterAKillTheNextRestoreGivesTheClocksBack) {
  FakeNvml node = FakeNvml::Create(Directory() / "nvml", {.gpus = {{}}});
  node.UseInThisProcess();
  const std::string which = std::string(" --devices nvml:") + FAKE_NVML_LIBRARY;
  const std::string started = RunWell("qualify" + which +
                                      " --socket none.sock --state state/agent.json >out 2>err & "
                                      "echo $!");
  const pid_t process = std::stoi(started);
  EXPECT_TRUE(Comes([&] { return node.SmLock(0).has_value(); })) << Read("err");
  kill(process, SIGKILL);
  EXPECT_TRUE(Comes([&] { return HasEnded(process); }));
  EXPECT_FALSE(node.IsAsShipped(0));
  const Outcome restored =
      Run("gpu restore" + which + " --socket none.sock --state state/agent.json");
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_THAT(restored.err, HasSubstr("which lease guard (\"perseus qualify\") left changed"));
  EXPECT_TRUE(node.IsAsShipped(0));
}

}  // namespace
}  // namespace perseus
