#include "perseus/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <set>

#include "perseus/base/file_descriptor.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus {
namespace {

namespace fs = std::filesystem;

// The files on which fsync() was called, by device and inode. Null while no test records them.
using Inode = std::pair<dev_t, ino_t>;
std::set<Inode>* flushed = nullptr;

Inode InodeOf(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? Inode(status.st_dev, status.st_ino) : Inode();
}

FileDescriptor ListenAt(const fs::path& path) {
  FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return listener;
}

class FileTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(FileTest, AReadReturnsTheBytesOfTheWrite) {
  const fs::path path = directory_ / "deep" / "er" / "file";
  const std::string contents("a\0b\r\n", 5);
  ASSERT_TRUE(WriteFileAtomically(path, contents));
  EXPECT_EQ(ValueOf(ReadFile(path)), contents);
}

TEST_F(FileTest, AWriteReplacesTheFileAndLeavesNoTemporaryFile) {
  const fs::path path = directory_ / "file";
  ASSERT_TRUE(WriteFileAtomically(path, "old"));
  ASSERT_TRUE(WriteFileAtomically(path, "new"));
  EXPECT_EQ(*ReadFile(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, TheCallerSaysWhoMayReadTheFile) {
  const auto rights = [&] { return fs::status(directory_ / "file").permissions(); };
  const mode_t before = ::umask(077);
  ASSERT_TRUE(WriteFileAtomically(directory_ / "file", "a"));
  ::umask(before);
  EXPECT_EQ(rights(), fs::perms(0644));
  ASSERT_TRUE(WriteFileAtomically(directory_ / "file", "secret", Readers::kOwner));
  EXPECT_EQ(rights(), fs::perms(0600));
}

TEST_F(FileTest, RemoveUnfinishedRemovesOnlyTheFilesOfKilledWriters) {
  const auto names = [this] {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      all.insert(entry.path().filename());
    }
    return all;
  };
  for (const char* const name : {"file", "file.lock", "file.old", "file.a-b_cd", "other.AbCd12",
                                 "fileAbCd12", "file.AbCd123"}) {
    ASSERT_TRUE(WriteFileAtomically(directory_ / name, "whole"));
  }
  fs::create_directory(directory_ / "file.folder");  // The same length as a temporary name.
  fs::create_symlink("file", directory_ / "link");
  const std::set<std::string> stays = names();
  ASSERT_TRUE(WriteFileAtomically(directory_ / "file.AbCd12", "half"));
  ASSERT_TRUE(WriteFileAtomically(directory_ / "file.000000", "half"));
  RemoveUnfinished(directory_ / "link");
  EXPECT_EQ(names(), stays);
}

TEST_F(FileTest, AFailedWriteKeepsTheOldContentsAndSaysWhy) {
  // The target is a directory, so the last step, the rename, fails.
  const fs::path path = directory_ / "taken";
  fs::create_directories(path / "child");
  const Result<void> written = WriteFileAtomically(path, "new");
  ASSERT_THAT(written, FailsAs(ErrorKind::kSystem));
  EXPECT_NE(written.error().Message().find("taken: cannot write: "), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, AWriteFlushesTheFileAndItsNewDirectories) {
  std::set<Inode> seen;
  flushed = &seen;
  const Result<void> written = WriteFileAtomically(directory_ / "deep" / "er" / "file", "new");
  flushed = nullptr;
  ASSERT_TRUE(written);
  for (const fs::path& path : {directory_.path(), directory_ / "deep", directory_ / "deep/er",
                               directory_ / "deep/er/file"}) {
    EXPECT_TRUE(seen.contains(InodeOf(path))) << path;
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST_F(FileTest, AWriteToANameWithoutDirectoryFlushesTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  std::set<Inode> seen;
  flushed = &seen;
  const Result<void> written = WriteFileAtomically("file", "new");
  flushed = nullptr;
  fs::current_path(before);
  ASSERT_TRUE(written);
  EXPECT_EQ(seen, (std::set<Inode>{InodeOf(directory_), InodeOf(directory_ / "file")}));
}

TEST_F(FileTest, AWriteThroughALinkKeepsTheLink) {
  fs::create_directory(directory_ / "there");
  ASSERT_TRUE(WriteFileAtomically(directory_ / "there/old", ""));
  for (const char* name : {"old", "new"}) {
    const fs::path link = directory_ / (std::string("to ") + name);
    fs::create_symlink(fs::path("there") / name, link);
    ASSERT_TRUE(WriteFileAtomically(link, name));
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(*ReadFile(directory_ / "there" / name), name);
  }
}

TEST_F(FileTest, AWriteToAPipeKeepsThePipe) {
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFileAtomically(pipe, "through"));
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 7);
  EXPECT_STREQ(got, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(FileTest, TheErrorSaysWhyAParentDirectoryCannotBeCreated) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "file", ""));
  const Result<void> written = WriteFileAtomically(directory_ / "file" / "deep" / "er", "");
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().Message().find("er: cannot write: Not a directory"), std::string::npos);
}

TEST_F(FileTest, TheErrorNamesAMissingFile) {
  const Result<std::string> read = ReadFile(directory_ / "absent");
  ASSERT_THAT(read, FailsAs(ErrorKind::kFile));
  EXPECT_NE(
      read.error().Message().find("absent: cannot read: No such file or directory (check the "),
      std::string::npos);
}

TEST_F(FileTest, TheErrorSaysThatThePathIsADirectory) {
  const Result<std::string> read = ReadFile(directory_);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().Message().find("is a directory"), std::string::npos);
}

// The error of ReadRegularFile, or an empty text if it succeeds.
std::string WhyNotRead(const fs::path& path, std::uint64_t most_bytes = kMostRegularBytes) {
  const Result<std::string> read = ReadRegularFile(path, most_bytes);
  return read ? "" : read.error().Message();
}

TEST_F(FileTest, ARegularFileIsReadUpToItsLimit) {
  const fs::path path = directory_ / "file";
  ASSERT_TRUE(WriteFileAtomically(path, "12345"));
  EXPECT_EQ(*ReadRegularFile(path), "12345");
  EXPECT_EQ(*ReadRegularFile(path, 5), "12345");
  EXPECT_NE(WhyNotRead(path, 4).find("is larger than 4 bytes"), std::string::npos);
  // Files in /proc have size 0. This one has the same contents at each read.
  EXPECT_EQ(*ReadRegularFile("/proc/version"), *ReadFile("/proc/version"));
  EXPECT_NE(WhyNotRead("/proc/version", 4).find("is larger than"), std::string::npos);
}

TEST_F(FileTest, ALargeFileIsRefusedBeforeMemoryIsAllocated) {
  const fs::path path = directory_ / "sparse";
  ASSERT_TRUE(WriteFileAtomically(path, ""));
  fs::resize_file(path, std::uint64_t{1} << 40);
  EXPECT_NE(WhyNotRead(path).find("is larger than 268435456 bytes"), std::string::npos);
}

TEST_F(FileTest, AReadOfWhatMayHaveNoEndFails) {
  EXPECT_NE(ReadFile("/dev/zero").error().Message().find("/dev/zero: is a device"),
            std::string::npos);
  EXPECT_EQ(*ReadFile("/dev/null"), "");
  const fs::path path = directory_ / "sparse";
  ASSERT_TRUE(WriteFileAtomically(path, ""));
  fs::resize_file(path, std::uint64_t{1} << 40);
  EXPECT_NE(ReadFile(path).error().Message().find("is larger than 1073741824 bytes"),
            std::string::npos);
}

TEST_F(FileTest, WhatIsNoFileIsRefusedWithoutWaiting) {
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const fs::path socket = directory_ / "socket";
  const FileDescriptor listener = ListenAt(socket);
  const std::pair<fs::path, const char*> cases[] = {
      {directory_ / "absent", "absent: cannot read: No such file or directory ("},
      {directory_.path(), ": is a directory (give the path of a file in it)"},
      {pipe, "pipe: is a named pipe (give the path of a file; or"},
      {socket, "socket: is a socket (give the path of a file)"},
      {pipe / "below", "below: cannot read: Not a directory ("},
      {directory_ / std::string(300, 'n'), ": cannot read: File name too long ("}};
  for (const auto& [path, why] : cases) {
    for (const Error& error : {CheckInputFile(path).error(), ReadFile(path).error()}) {
      EXPECT_EQ(error.kind, ErrorKind::kFile) << path;
      EXPECT_NE(error.Message().find(why), std::string::npos) << error.Message();
    }
    EXPECT_EQ(ReadRegularFile(path).error().kind, ErrorKind::kFile) << path;
  }
  EXPECT_EQ(ReadFile("/dev/zero").error().kind, ErrorKind::kFile);
}

TEST_F(FileTest, APipeWithoutANameIsRead) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor out(ends[0]);
  {
    const FileDescriptor in(ends[1]);
    ASSERT_EQ(::write(in.get(), "through", 7), 7);
  }
  const fs::path path = "/dev/fd/" + std::to_string(out.get());
  EXPECT_TRUE(CheckInputFile(path));
  EXPECT_EQ(*ReadFile(path), "through");
}

TEST_F(FileTest, PipesDevicesAndDirectoriesAreRefusedWithoutWaiting) {
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(WhyNotRead(pipe).find("is not a regular file"), std::string::npos);
  EXPECT_NE(WhyNotRead("/dev/zero").find("is not a regular file"), std::string::npos);
  EXPECT_NE(WhyNotRead(directory_).find("is a directory"), std::string::npos);
  EXPECT_NE(WhyNotRead(directory_ / "absent").find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace perseus

// Replaces the function of the C library, so the tests see what a write flushes.
extern "C" int fsync(int fd) {
  struct stat status {};
  if (perseus::flushed != nullptr && ::fstat(fd, &status) == 0) {
    perseus::flushed->emplace(status.st_dev, status.st_ino);
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
