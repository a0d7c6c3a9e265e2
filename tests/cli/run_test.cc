// `perseus run` with programs that train nothing: what the verb gives to the programs, and what it
// returns.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "perseus/base/file.h"
#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RunVerbTest : public ProgramTest {
 protected:
  std::string Here() const { return std::filesystem::canonical(Directory()).string(); }
};

TEST_F(RunVerbTest, HasTheOutputAndTheExitStatusOfTheTraining) {
  const Outcome seven = Run("run -- sh -c 'echo out; echo err >&2; exit 7'");
  EXPECT_EQ(seven.status, 7);
  EXPECT_EQ(seven.out, "out\n");
  EXPECT_THAT(seven.err,
              AllOf(HasSubstr("\nerr\n"),
                    HasSubstr("perseus: no rank recorded a step in " + Here() +
                              "/perseus-run-1 before the training ended with status 7\n")));
  EXPECT_EQ(Run("run -- true").status, 0);
  EXPECT_EQ(Run("run -- sh -c 'kill -9 $$'").status, 128 + 9);
}

TEST_F(RunVerbTest, SaysThatStagesRanOutsideOfAStep) {
  EXPECT_THAT(Run("run --job-directory run -- touch run/ranks/dp0-pp0-tp0.outside").err,
              HasSubstr("perseus: stages ran, but no step of a schedule, so nothing is recorded "
                        "in " +
                        Here() + "/run (the output of the ranks says why"));
}

TEST_F(RunVerbTest, SaysWhyATrainingCannotRun) {
  const Outcome absent = Run("run -- ./absent");
  EXPECT_EQ(absent.status, 127);
  EXPECT_THAT(absent.err,
              HasSubstr("perseus: cannot run ./absent: No such file or directory (check the name"));
  Write("data", "no program");
  EXPECT_EQ(Run("run -- ./data").status, 126);
  Write("script", "#!/opt/absent/python3 -u\nimport torch\n");
  std::filesystem::permissions(Directory() / "script", std::filesystem::perms::owner_all);
  const Outcome script = Run("run -- ./script");
  EXPECT_EQ(script.status, 127);
  EXPECT_THAT(script.err, HasSubstr("perseus: cannot run ./script: its interpreter "
                                    "\"/opt/absent/python3\" does not exist (correct"));
  // The program looks as if it was built for another C library.
  std::string program = *ReadFile("/bin/true");
  const std::size_t loader = program.find("ld-linux");
  ASSERT_NE(loader, program.npos);
  Write("program", program.replace(loader, 8, "ld-other"));
  std::filesystem::permissions(Directory() / "program", std::filesystem::perms::owner_all);
  const Outcome no_loader = Run("run -- ./program");
  EXPECT_EQ(no_loader.status, 127);
  EXPECT_THAT(no_loader.err,
              HasSubstr("perseus: cannot run ./program: its loader does not exist (is it built"));
  ExpectComplaint(Run("run"), 2, "the training is missing");
  ExpectComplaint(Run("run --job-directory run"), 2, "the training is missing");
  ExpectComplaint(Run("run torchrun x.py"), 2, "the training comes after --: perseus run");
  ExpectComplaint(Run("run --tune --plan x -- true"), 2, "--plan");
}

TEST_F(RunVerbTest, GivesTheTrainingItsWordsUnchanged) {
  const Outcome outcome =
      Run("run --job-directory run -- sh -c 'printf \"%s|\" \"$@\"' x '[1,2]' '' --tune -- a=b");
  EXPECT_EQ(outcome.out, "[1,2]||--tune|--|a=b|");
  EXPECT_EQ(outcome.status, 0);
}

// If `perseus run` ignored a further signal, the training would ignore it, too.
TEST_F(RunVerbTest, TheTrainingIgnoresNoFurtherSignal) {
  const auto ignored = [&](const std::string& start) {
    const std::string line = Run(start + "grep SigIgn /proc/self/status").out;
    // The C library reserves the first two real-time signals, and posix_spawn ignores them.
    constexpr unsigned long long kOfTheLibrary = 0x180000000;
    return std::stoull(line.substr(line.find(':') + 1), nullptr, 16) & ~kOfTheLibrary;
  };
  EXPECT_EQ(ignored("run --job-directory run -- "), ignored("--version >/dev/null; "));
}

TEST_F(RunVerbTest, SetsTheEnvironment) {
  const std::string show =
      "-- sh -c 'echo $PERSEUS_ATTACH $PERSEUS_AGENT $PERSEUS_JOB_DIR; echo $PYTHONPATH'";
  EXPECT_THAT(Run("run " + show).out, StartsWith("auto own " + Here() + "/perseus-run-1\n"));
  EXPECT_THAT(Run("run " + show).out, StartsWith("auto own " + Here() + "/perseus-run-2\n"));
  EXPECT_THAT(Run("run --job-directory a/b " + show).out,
              StartsWith("auto own " + Here() + "/a/b\n"));
  setenv("PERSEUS_ATTACH", "off", 1);
  setenv("PERSEUS_AGENT", "/run/my.sock", 1);
  setenv("PYTHONPATH", "/mine:/too", 1);
  const std::string out = Run("run --job-directory run " + show).out;
  EXPECT_THAT(out, StartsWith("off /run/my.sock " + Here() + "/run\n"));
  EXPECT_THAT(out, HasSubstr("/mine:/too"));
  unsetenv("PERSEUS_ATTACH");
  unsetenv("PERSEUS_AGENT");
  unsetenv("PYTHONPATH");
}

TEST_F(RunVerbTest, TheDemoKeepsAnExistingDirectory) {
  Write("mine/file", "");
  const Outcome outcome = Run("demo -o mine");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("mine exists (remove it, or name another directory"));
  EXPECT_EQ(Run("demo -o mine/file/below").status, 2);
  EXPECT_EQ(Run("run --job-directory run -- ls mine").out, "file\n");
}

TEST_F(RunVerbTest, TrainsWithoutAJobDirectory) {
  Write("file", "");
  for (const std::string flags : {"--job-directory file", "--tune --job-directory file/below"}) {
    const Outcome outcome = Run("run " + flags + " -- sh -c 'echo \"<$PERSEUS_JOB_DIR>\"; exit 3'");
    EXPECT_EQ(outcome.status, 3);
    EXPECT_EQ(outcome.out, "<>\n");
    EXPECT_THAT(outcome.err, HasSubstr("perseus: cannot write to file"));
    EXPECT_THAT(outcome.err, HasSubstr("; nothing is recorded\n"));
  }
}

TEST_F(RunVerbTest, TrainsWithoutAPlanThatCannotBeRead) {
  const Outcome outcome =
      Run("run --job-directory run --plan absent.json -- sh -c 'echo \"<$PERSEUS_PLAN>\"'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "<>\n");
  // The message appears at the beginning and at the end.
  EXPECT_THAT(
      outcome.err,
      ContainsRegex("absent.json: .*; no plan is followed\n(.*\n)*.*absent.json: .*; no plan "
                    "is followed\n$"));
}

TEST_F(RunVerbTest, SaysThatNothingWasTuned) {
  const Outcome outcome = Run("run --tune --job-directory run -- true");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("perseus: there is no plan: no rank recorded a step\n"));
}

// `perseus run` prints why tune failed, although the training has ended before. The training waits
// until `perseus run` has seen the end of tune. Until then, tune is one of its child processes.
TEST_F(RunVerbTest, SaysWhyTuneFailed) {
  Write("training", R"(
echo >run/tuned
echo >run/ranks/dp0-pp0-tp0.jsonl
i=0
until grep -q perseus run/tune.log || [ $i -ge 600 ]; do sleep 0.1; i=$((i+1)); done
for child in $(grep -lsx "PPid:.$PPID" /proc/[0-9]*/status); do
  [ $child != /proc/$$/status ] || continue
  i=0
  while grep -qsx "PPid:.$PPID" $child && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done
done
)");
  const Outcome outcome = Run("run --tune --job-directory run -- sh ./training");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, ContainsRegex("perseus: there is no plan: .*run/tuned"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("the training ended too early")));
}

TEST_F(RunVerbTest, WarnsThatNodesRecordApart) {
  const std::string warning = "perseus: the training runs on 2 nodes, but each node records into";
  for (const std::string flag : {"--nnodes 2", "--nnodes=2", "--nnodes=1:2"}) {
    EXPECT_THAT(Run("run -- true " + flag).err, HasSubstr(warning)) << flag;
  }
  for (const std::string flag : {"--nnodes 1", "--nnodes", "--nnodes=x", "--nnodes=1:1"}) {
    EXPECT_THAT(Run("run -- true " + flag).err, Not(HasSubstr("nodes"))) << flag;
  }
  EXPECT_THAT(Run("run --job-directory shared -- true --nnodes 2").err, Not(HasSubstr("nodes")));
}

TEST_F(RunVerbTest, WarnsThatALauncherStartsSeveralRuns) {
  const auto with = [this](const char* size, const char* value, const char* rank = "RANK",
                           const char* number = "0") {
    setenv(size, value, 1);
    setenv(rank, number, 1);
    const std::string errors = Run("run -- true").err;
    unsetenv(size);
    unsetenv(rank);
    return errors;
  };
  EXPECT_THAT(with("PET_NNODES", "1:2"), HasSubstr("perseus: the training runs on 2 nodes, but"));
  const std::string several = "perseus: a launcher has started perseus run several times (";
  EXPECT_THAT(with("SLURM_STEP_NUM_TASKS", "8", "SLURM_PROCID"),
              HasSubstr(several + "SLURM_STEP_NUM_TASKS=8)"));
  EXPECT_THAT(with("OMPI_COMM_WORLD_SIZE", "2"), HasSubstr(several + "OMPI_COMM_WORLD_SIZE=2)"));
  EXPECT_THAT(with("WORLD_SIZE", "4"), HasSubstr(several + "WORLD_SIZE=4)"));
  // One of them says it for all.
  for (const std::string& errors : {with("SLURM_STEP_NUM_TASKS", "8", "SLURM_PROCID", "1"),
                                    with("WORLD_SIZE", "4", "RANK", "2"),
                                    with("SLURM_STEP_NUM_TASKS", "1"), with("PET_NNODES", "1")}) {
    EXPECT_THAT(errors, Not(HasSubstr("directory of its own")));
  }
}

TEST_F(RunVerbTest, WarnsThatALauncherDropsTheSettings) {
  for (const std::string command : {"./pdsh -w n[1-2] true", "./deepspeed --hostfile=hosts x.py",
                                    "./deepspeed -H hosts x.py"}) {
    EXPECT_THAT(Run("run --job-directory run -- " + command).err,
                HasSubstr(" does not pass the settings of Perseus to other nodes"));
  }
  EXPECT_THAT(Run("run --job-directory run -- ./deepspeed x.py").err, Not(HasSubstr("settings")));
}

TEST_F(RunVerbTest, SaysWhyNothingIsRecorded) {
  EXPECT_THAT(Run("run -- true").err, HasSubstr("(is the framework one that Perseus attaches?"));
  EXPECT_THAT(Run("run -- false").err, HasSubstr("before the training ended with status 1\n"));
  setenv("PERSEUS_ATTACH", "off", 1);
  EXPECT_THAT(Run("run -- true").err, HasSubstr("because PERSEUS_ATTACH is off"));
  unsetenv("PERSEUS_ATTACH");
}

// The logs are as with a full disk: one rank recorded one step, one rank four steps, and two ranks
// nothing.
TEST_F(RunVerbTest, SaysThatRanksAreMissing) {
  const auto record = [](int rank, int steps) {
    std::string log = fmt::format(
        "{{\"perseus_rank_log\":1,\"dp_rank\":0,\"pp_rank\":{},\"tp_rank\":0,\"gpu\":\"\","
        "\"gpu_name\":\"\",\"host\":\"h\",\"pid\":1,\"sm_clocks_mhz\":[],"
        "\"may_set_clocks\":false,\"epoch_ns\":0,\"stages\":[{}],\"pp_ranks\":4}}\n",
        rank, rank);
    for (int step = 0; step < steps; ++step) {
      log += fmt::format(
          "{{\"step\":{},\"assignment_version\":0,\"has_plan\":false,\"on_plan\":true,"
          "\"begin_ns\":{}000000000,\"end_ns\":{}500000000,\"instructions\":[],\"energy\":[],"
          "\"clocks\":[],\"temperature_c\":0,\"power_w\":0,\"limited\":false}}\n",
          step, step + 1, step + 1);
    }
    return log;
  };
  Write("0", record(0, 4));
  Write("1", record(1, 1));
  const std::string copy = "-- sh -c 'for i in ";
  const std::string body = "; do cp $i run/ranks/dp0-pp$i-tp0.jsonl; done'";
  EXPECT_THAT(
      Run("run --job-directory run " + copy + "0 1" + body).err,
      AllOf(HasSubstr(
                "perseus: 4 steps of 2 ranks, 1 s a step (median); the energy was not measured"),
            HasSubstr("perseus: 2 more ranks recorded no step, so these numbers are not"),
            HasSubstr("perseus: a rank recorded only 1 step, so the energy is not that of the")));
  std::filesystem::remove_all(Directory() / "run");
  EXPECT_THAT(Run("run --job-directory run " + copy + "1" + body).err,
              HasSubstr("perseus: 1 step of 1 ranks; the energy was not measured"));
}

TEST_F(RunVerbTest, WarnsOfAPythonThatIgnoresTheHook) {
  const std::string warning = "perseus: this Python does not run the hook of Perseus";
  for (const std::string words : {"-I -c pass", "-u -E -c pass", "-OSc pass"}) {
    EXPECT_THAT(Run("run -- python3 " + words).err, HasSubstr(warning)) << words;
  }
  for (const std::string words : {"-c pass -I", "-Xdev -c pass", "-cpass -S", "--version -I"}) {
    EXPECT_THAT(Run("run -- python3 " + words).err, Not(HasSubstr(warning))) << words;
  }
}

TEST_F(RunVerbTest, PassesSignalsOnToTheTraining) {
  for (const std::string name : {"TERM", "INT", "USR1"}) {
    const Outcome outcome =
        Run("run --job-directory run -- sh -c 'trap \"echo got " + name + "; exit 5\" " + name +
            "; kill -" + name + " $PPID; for i in $(seq 100); do sleep 0.1; done' ");
    EXPECT_EQ(outcome.status, 5) << outcome.err;
    EXPECT_EQ(outcome.out, "got " + name + "\n");
  }
}

// Other users may be able to write into the job directory.
TEST_F(RunVerbTest, WritesThroughNoLinkInTheJobDirectory) {
  Write("run/ranks/dp0-pp0-tp0.jsonl", "");
  for (const std::string name : {"run.lock", "tune.log", "tune.json"}) {
    Write("victim-" + name, "secret");
    std::filesystem::create_symlink("../victim-" + name, Directory() / "run" / name);
  }
  const Outcome locked = Run("run --tune --job-directory run -- sh -c 'exit 3'");
  EXPECT_EQ(locked.status, 3);
  EXPECT_THAT(locked.err, HasSubstr("/run/run.lock: is a symbolic link (put a file in its place); "
                                    "this run is not tuned and not summed up\n"));
  std::filesystem::remove(Directory() / "run/run.lock");
  Write("training",
        "touch run/ranks/dp0-pp0-tp0.jsonl; i=0; until [ ! -h run/tune.log ] || [ $i -ge 600 ]; do "
        "sleep "
        "0.1; i=$((i+1)); done");
  EXPECT_EQ(Run("run --tune --job-directory run -- sh ./training").status, 0);
  EXPECT_FALSE(std::filesystem::is_symlink(Directory() / "run/tune.json"));
  for (const std::string name : {"run.lock", "tune.log", "tune.json"}) {
    EXPECT_EQ(Read("victim-" + name), "secret");
  }
}

TEST_F(RunVerbTest, RecordsNothingWhereALinkReplacesTheRanks) {
  Write("elsewhere/file", "");
  Write("run/file", "");
  std::filesystem::create_symlink("../elsewhere", Directory() / "run/ranks");
  const Outcome outcome = Run("run --job-directory run -- sh -c 'echo \"<$PERSEUS_JOB_DIR>\"'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "<>\n");
  EXPECT_THAT(outcome.err, HasSubstr("perseus: cannot write to run: run/ranks: is a symbolic link "
                                     "(put a directory in its place); nothing is recorded\n"));
}

TEST_F(RunVerbTest, OneOfSeveralTunes) {
  const Outcome outcome = Run("run --tune --job-directory run -- sh -c '" PERSEUS_PROGRAM
                              " run --tune --job-directory run -- true'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("/run; another perseus run tunes this job\n"));
}

}  // namespace
}  // namespace perseus
