// The main function of the test programs.
#include <gmock/gmock.h>

#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  if (tests.test_to_run_count() == 0) {
    std::puts("no test has this name");
    return 1;
  }
  // --gtest_brief leaves the seed out.
  if (status != 0) std::printf("--gtest_random_seed=%d repeats the order\n", tests.random_seed());
  return status;
}
