#include "perseus/base/system_cause.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace perseus {
namespace {

TEST(SystemError, EveryErrorNumberHasACauseAndARemedy) {
  for (int number = 1; number < 140; ++number) {
    const Error error = SystemError(number, "cannot write");
    EXPECT_EQ(error.what, "cannot write: " + std::generic_category().message(number));
    EXPECT_GT(error.remedy.size(), 12U) << error.what;
    EXPECT_EQ(error.Message().find('\n'), std::string::npos) << error.what;
    EXPECT_EQ(error.kind, ErrorKind::kSystem);
  }
}

TEST(SystemError, ARemedyFitsItsCause) {
  EXPECT_EQ(SystemError(ENOSPC, "cannot write", InFile("plan.json")).Message(),
            "plan.json: cannot write: No space left on device (free space there, or give a place "
            "on another disk)");
  EXPECT_EQ(SystemError(EMFILE, "x").remedy, "raise the limit of open files: ulimit -n");
  EXPECT_EQ(SystemError(EISDIR, "x", {}, ErrorKind::kFile).kind, ErrorKind::kFile);
}

}  // namespace
}  // namespace perseus
