// The main function of the test programs. With --gtest_brief, GoogleTest prints only failures. The
// seed of the order and the name of a test that crashes would then be missing, so this file prints
// them.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

std::string running;

class RememberTest : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    running = std::string("crashed in ") + test.test_suite_name() + "." + test.name() + "\n";
  }
};

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kCrashes.size()> earlier;  // For example, the handler of a sanitizer.

// When this handler returns, the crash happens again, and the earlier handler handles it.
void NameTest(int signal) {
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, running.data(), running.size());
  for (std::size_t i = 0; i < kCrashes.size(); ++i) {
    if (kCrashes[i] == signal) ::sigaction(signal, &earlier[i], nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  tests.listeners().Append(new RememberTest);
  struct sigaction action {};
  action.sa_handler = NameTest;
  for (std::size_t i = 0; i < kCrashes.size(); ++i) {
    ::sigaction(kCrashes[i], &action, &earlier[i]);
  }
  const int status = RUN_ALL_TESTS();
  if (tests.test_to_run_count() == 0) {
    std::puts("no test has this name");
    return 1;
  }
  if (status != 0) std::printf("--gtest_random_seed=%d repeats the order\n", tests.random_seed());
  return status;
}
