#include "perseus/base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace perseus {
namespace {

int Open() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptor, ClosesItself) {
  const int fd = Open();
  {
    const FileDescriptor file(fd);
    EXPECT_TRUE(file);
    EXPECT_EQ(file.get(), fd);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(FileDescriptor, AMovedDescriptorIsClosedOnceByItsNewOwner) {
  const int fd = Open();
  FileDescriptor file(fd);
  {
    const FileDescriptor owner(std::move(file));
    EXPECT_EQ(owner.get(), fd);
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_FALSE(file);  // NOLINT(bugprone-use-after-move): the test reads it on purpose.
}

TEST(FileDescriptor, AssignmentClosesThePreviousDescriptor) {
  const int fd = Open();
  FileDescriptor file(fd);
  file = FileDescriptor();
  EXPECT_FALSE(file);
  EXPECT_FALSE(IsOpen(fd));
}

}  // namespace
}  // namespace perseus
