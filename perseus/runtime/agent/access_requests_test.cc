#include "perseus/runtime/access/access_judgment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The child that asks the kernel joins two cgroups, which are pipes. So it waits twice, and the
// process moves between the two.
TEST(JudgeAccess, RefusesAProcessThatMovesToAnotherCgroupMeanwhile) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  const TemporaryDirectory root;
  const auto write = [&](const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  const std::string before = "5:devices:/job_1\n0::/job_1\n";
  write("proc/self/cgroup", "0::/agent\n");
  write("proc/4242/stat", "4242 (train) R 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7000 0 0\n");
  write("proc/4242/cgroup", before);
  write("sys/fs/cgroup/cgroup.controllers", "");
  const fs::path first = root / "sys/fs/cgroup/devices/job_1/cgroup.procs";
  const fs::path second = root / "sys/fs/cgroup/job_1/cgroup.procs";
  for (const fs::path& pipe : {first, second}) {
    fs::create_directories(pipe.parent_path());
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  }
  Host host;
  host.root = root;
  Caller caller;
  caller.process = {4242, 7000};
  caller.uid = 54'321;
  AccessChecker checker;
  const auto judge = [&](const std::string& cgroups_meanwhile) {
    std::thread mover([&] {
      const std::ifstream joins_first(first);
      write("proc/4242/cgroup", cgroups_meanwhile);
      std::ifstream joins_second(second);
      std::string text;
      joins_second >> text;
    });
    const auto allowed = JudgeAccess(host, {caller, {GpuFile{"GPU-a", "/dev/null"}}, {}}, checker);
    mover.join();
    return allowed;
  };
  const auto stays = judge(before);
  EXPECT_TRUE(stays) << stays.error().message;
  const auto moves = judge("5:devices:/job_2\n0::/job_1\n");
  ASSERT_FALSE(moves);
  EXPECT_EQ(moves.error().code, protocol::Refusal::kUnavailable);
  EXPECT_THAT(moves.error().message, HasSubstr("moved to another cgroup"));
}

}  // namespace
}  // namespace perseus::agent
