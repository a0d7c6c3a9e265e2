#include "perseus/cluster/http/unix_listener.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <initializer_list>

#include "tests/support/temporary_directory.h"
#include "tests/support/test_server.h"

namespace perseus::http {
namespace {

using testing::HasSubstr;

class UnixListener : public testing::Test {
 protected:
  UnixListener() : old_mask_(::umask(0)) { ::chmod(directory_.path().c_str(), 0755); }
  ~UnixListener() override { ::umask(old_mask_); }

  std::string Path(const std::string& name = "s") const { return (directory_ / name).string(); }
  static mode_t ModeOf(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
  }
  static std::string WhyNot(const UnixAddress& at) {
    const auto listener = ListenUnix(at);
    return listener ? "" : listener.error().Message();
  }

  TemporaryDirectory directory_;
  mode_t old_mask_;
};

TEST_F(UnixListener, OnlyItsOwnerAndTheGroupMayConnect) {
  const auto alone = ListenUnix({.path = Path()});
  ASSERT_TRUE(alone) << alone.error().Message();
  EXPECT_EQ(ModeOf(Path()), 0600);
  EXPECT_NO_THROW(RawClient{Path()});
  const auto shared = ListenUnix({.path = Path("g"), .group = std::to_string(::getegid())});
  ASSERT_TRUE(shared) << shared.error().Message();
  EXPECT_EQ(ModeOf(Path("g")), 0660);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    for (const std::string& path : {Path(), Path("g")}) {
      try {
        const RawClient client(path);
      } catch (const std::runtime_error&) {
        ++refused;
      }
    }
    ::_exit(refused);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2) << "another user may connect";
}

TEST_F(UnixListener, ReplacesOnlyASocketWithoutAListener) {
  {
    const auto first = ListenUnix({.path = Path()});
    ASSERT_TRUE(first) << first.error().Message();
    EXPECT_THAT(WhyNot({.path = Path()}), HasSubstr("another process listens there"));
  }
  EXPECT_EQ(WhyNot({.path = Path()}), "");
  std::ofstream(Path("file")) << "mine";
  EXPECT_THAT(WhyNot({.path = Path("file")}), HasSubstr("is not a socket"));
}

TEST_F(UnixListener, RefusesADirectoryThatOthersMayWriteTo) {
  for (const mode_t mode : std::initializer_list<mode_t>{0775, 0757, 01777}) {
    ::chmod(directory_.path().c_str(), mode);
    EXPECT_THAT(WhyNot({.path = Path()}), HasSubstr("other users may write to this directory"));
  }
}

TEST_F(UnixListener, MakesItsDirectory) {
  ::umask(0077);
  const auto listener = ListenUnix({.path = Path("d/s"), .group = std::to_string(::getegid())});
  ASSERT_TRUE(listener) << listener.error().Message();
  EXPECT_EQ(ModeOf(Path("d")), 0750);
  EXPECT_EQ(ModeOf(Path("d/s")), 0660);
  EXPECT_THAT(WhyNot({.path = Path("no/d/s")}), HasSubstr("cannot make the directory"));
}

TEST_F(UnixListener, SaysWhatIsWrong) {
  EXPECT_THAT(WhyNot({.path = "s"}), HasSubstr("expected an absolute path"));
  EXPECT_THAT(WhyNot({.path = Path(std::string(200, 'a'))}), HasSubstr("at most 107 bytes"));
  EXPECT_THAT(WhyNot({.path = Path(), .group = "no-such-group"}), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace perseus::http
