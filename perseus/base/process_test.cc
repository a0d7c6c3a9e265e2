#include "perseus/base/process.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/support/results.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

TEST(RunProgram, PassesTheInputAndReturnsTheOutput) {
  // The text is longer than the buffer of a pipe.
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(RunProgram({"cat"}, text).value(), text);
  EXPECT_EQ(RunProgram({"printf", "%s", "a b;$c"}, "").value(), "a b;$c");
}

TEST(RunProgram, TheErrorSaysThatTheProgramIsNotInstalled) {
  EXPECT_THAT(RunProgram({"no-such-program-here"}, ""),
              FailsAs(ErrorKind::kUnreachable, HasSubstr("no-such-program-here is not installed")));
}

TEST(RunProgram, TheErrorHasTheFirstLineOfStandardError) {
  EXPECT_THAT(RunProgram({"sh", "-c", "echo out; echo why >&2; echo more >&2; exit 3"}, ""),
              FailsAs(ErrorKind::kSystem, "sh failed: why"));
  EXPECT_FALSE(RunProgram({"sh", "-c", "kill -9 $$"}, ""));
}

constexpr const char* kRest = " 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 3521262 23 24\n";

std::string Status(const char* thread, const char* process) {
  return std::string("Name:\tperseus\nSigPnd:\t") + thread + "\nShdPnd:\t" + process + "\n";
}
constexpr const char* kNone = "0000000000000000";
constexpr const char* kKill = "0000000000000100";
constexpr const char* kTerminate = "0000000000004000";

TEST(ParseProcessState, FindsTheStartTimeWhateverTheProcessIsCalled) {
  for (const char* name :
       {"(train)", "(a b c)", "(:-) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18)", "((()", "())",
        "(line\nend)", "()"}) {
    const auto state = ParseProcessState("42 " + std::string(name) + " S" + kRest, "");
    ASSERT_TRUE(state) << name;
    EXPECT_EQ(state->started, 3521262U) << name;
    EXPECT_FALSE(state->is_ending) << name;
  }
  for (const char* text : {"", "42 (train", "42 (train) ", "42 (train) S 4 5", "no parenthesis",
                           "42 (t) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 x 23"}) {
    EXPECT_FALSE(ParseProcessState(text, "")) << text;
  }
}

TEST(ParseProcessState, AKilledProcessIsEnding) {
  struct Row {
    char state;
    const char* thread_pending;
    const char* process_pending;
    bool is_ending;
  };
  for (const Row& row :
       {Row{'S', kNone, kNone, false}, Row{'D', kNone, kNone, false}, Row{'T', kNone, kNone, false},
        Row{'D', kNone, kTerminate, false}, Row{'D', kNone, kKill, true},
        Row{'D', kKill, kNone, true}, Row{'Z', kNone, kNone, true}}) {
    const auto state = ParseProcessState("42 (Z) " + std::string(1, row.state) + kRest,
                                         Status(row.thread_pending, row.process_pending))
                           .value();
    EXPECT_EQ(state.is_ending, row.is_ending)
        << row.state << row.thread_pending << row.process_pending;
  }
}

// The process has received the kill (none is pending), and the kernel still closes its files.
TEST(ParseProcessState, AProcessThatExitsIsEnding) {
  std::string rest = kRest;
  rest.replace(rest.find(" 9 "), 3, " 4194564 ");  // 0x400104: PF_EXITING is 4.
  EXPECT_TRUE(ParseProcessState("42 (train) R" + rest, Status(kNone, kNone))->is_ending);
}

TEST(ReadProcessState, KnowsRealProcesses) {
  const auto self = ReadProcessState(::getpid()).value();
  EXPECT_GT(self.started, 0U);
  EXPECT_FALSE(self.is_ending);

  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  ::kill(child, SIGSTOP);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_FALSE(ReadProcessState(child)->is_ending) << "a stopped process may go on";
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(ReadProcessState(child)->is_ending);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(ReadProcessState(child));
}

}  // namespace
}  // namespace perseus
