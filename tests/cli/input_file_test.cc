// Tests that every verb refuses a thing that is no file, in place of each file that the verb reads.
// The status is 2, and the error is one line. The error comes at once, before the verb looks for
// missing flags, and without waiting for a pipe.
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "perseus/base/file_descriptor.h"
#include "tests/cli/program.h"

namespace perseus {
namespace {

struct NoFile {
  const char* path;
  const char* complaint;
};

constexpr NoFile kNoFiles[] = {
    {"absent", "absent: cannot read: No such file or directory (check the name"},
    {"profile.csv/below", "below: cannot read: Not a directory (check the path"},
    {"folder", "folder: is a directory (give the path of a file in it)"},
    {"pipe", "pipe: is a named pipe (give the path of a file; or"},
    {"socket", "socket: is a socket (give the path of a file)"},
    {"/dev/zero", "/dev/zero: is a device (give the path of a file)"},
};

// Each file that a verb reads. The path replaces {}.
constexpr const char* kReaders[] = {
    "plan {}",
    "plan --job {}",
    "plan --graph {}",
    "plan profile.csv --schedule-file {}",
    "plan profile.csv --facts {}",
    "compare {}",
    "compare profile.csv --schedule-file {}",
    "emulate {}",
    "emulate profile.csv --plan {}",
    "emulate profile.csv --events {}",
    "evaluate {}",
    "evaluate profile.csv --profile {}",
    "report profile.csv --profile {}",
    "report profile.csv --frontier {}",
    "replay {}",
    "partition {}",
    "partition profile.csv --facts {}",
    "schedule search {}",
    "schedule search --job {}",
    "run --tune --facts {} -- true",
    "tune here --facts {}",
    "verify here --plan {}",
    "trace here --plan {}",
    "trainer --node {}",
    "trainer --profile {}",
    "trainer --plan {}",
    "agent --facts {}",
    "serve --tls-certificate {}",
    "serve --tls-key {}",
    "serve --client-ca {}",
    "serve --identities {}",
    "node --ca {}",
    "node --cert {} --key profile.csv",
    "node --cert profile.csv --key {}",
    "jobs --ca {}",
    "jobs --token-file {}",
    "job register job-1 --profile {}",
    "job register job-1 --job {}",
    "job register job-1 --schedule-file {}",
    "job show job-1 --token-file {}",
    "token list --token-file {}",
    "audit --ca {}",
};

class InputFileTest : public CommandTest {
 protected:
  InputFileTest() {
    MakeProfile();
    std::filesystem::create_directories(Directory() / "folder");
    std::filesystem::create_directories(Directory() / "here" / "ranks");
    EXPECT_EQ(::mkfifo((Directory() / "pipe").c_str(), 0600), 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    (Directory() / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }

 private:
  const FileDescriptor listener_{::socket(AF_UNIX, SOCK_STREAM, 0)};
};

TEST_F(InputFileTest, WhatIsNoFileIsRefusedByEveryVerb) {
  for (const char* reader : kReaders) {
    for (const NoFile& no_file : kNoFiles) {
      const std::string arguments = fmt::format(fmt::runtime(reader), no_file.path);
      SCOPED_TRACE(arguments);
      ExpectComplaint(Run(arguments), 2, no_file.complaint);
    }
  }
}

TEST_F(InputFileTest, PlansOfADirectoryAreFiles) {
  for (const char* reader : {"show {}", "report {} -o page.html"}) {
    for (const NoFile& no_file : kNoFiles) {
      if (std::string_view(no_file.path) == "folder") continue;  // These verbs read directories.
      const std::string arguments = fmt::format(fmt::runtime(reader), no_file.path);
      SCOPED_TRACE(arguments);
      ExpectComplaint(Run(arguments), 2, no_file.complaint);
    }
  }
}

TEST_F(InputFileTest, FilesThatOtherFilesNameAreRefused) {
  for (const NoFile& no_file : kNoFiles) {
    SCOPED_TRACE(no_file.path);
    Write("job.toml", fmt::format("profile = \"{}\"\n[pipeline]\nschedule = \"1f1b\"\n"
                                  "microbatches = 2\n[gpu]\nblocking_power_w = 80\n",
                                  no_file.path));
    ExpectComplaint(Run("plan --job job.toml"), 2, no_file.complaint);
    ExpectComplaint(
        Run(fmt::format("agent --devices virtual:{} --socket s --state t", no_file.path)), 2,
        no_file.path);
  }
}

TEST_F(InputFileTest, AFileInPlaceOfADirectoryIsRefused) {
  for (const char* reader : {"tune {}", "verify {}", "trace {} -o trace.json", "schedule {}"}) {
    for (const char* path : {"absent", "profile.csv", "pipe", "socket", "/dev/zero"}) {
      const std::string arguments = fmt::format(fmt::runtime(reader), path);
      SCOPED_TRACE(arguments);
      ExpectComplaint(Run(arguments), 2, path);
    }
  }
}

}  // namespace
}  // namespace perseus
