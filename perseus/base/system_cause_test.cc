#include "perseus/base/system_cause.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace perseus {
namespace {

TEST(SystemCause, EveryErrorNumberHasACauseAndARemedy) {
  for (int error = 1; error < 140; ++error) {
    const std::string text = CauseAndRemedy(error);
    const std::string cause = std::generic_category().message(error);
    EXPECT_EQ(text.substr(0, cause.size() + 2), cause + " (");
    EXPECT_GT(text.size(), cause.size() + 12) << text;
    EXPECT_EQ(text.back(), ')') << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(SystemCause, ARemedyFitsItsCause) {
  EXPECT_EQ(CauseAndRemedy(ENOSPC),
            "No space left on device (free space there, or give a place on another disk)");
  EXPECT_EQ(CauseAndRemedy(EMFILE),
            "Too many open files (raise the limit of open files: ulimit -n)");
  EXPECT_EQ(CauseAndRemedy(std::make_error_code(std::errc::is_a_directory)),
            "Is a directory (give the path of a file)");
}

}  // namespace
}  // namespace perseus
