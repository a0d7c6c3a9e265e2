#include "tests/faults/hanging_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "tests/faults/process.h"

namespace perseus::faults {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFileNode = 2;  // FUSE_ROOT_ID is 1.
constexpr const char* kFileName = "file";
constexpr std::uint64_t kForeverSeconds = 1'000'000;
constexpr uid_t kTrialUser = 54'321;

// A mount needs a user namespace with a map of its own.
bool EnterUserNamespace() {
  const uid_t user = getuid();
  const gid_t group = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << user << ' ' << user << " 1";
  std::ofstream("/proc/self/gid_map") << group << ' ' << group << " 1";
  return getuid() == user && getgid() == group;
}

fuse_attr AttributesOf(std::uint64_t node) {
  fuse_attr attributes{};
  attributes.ino = node;
  attributes.mode = node == kFileNode ? S_IFREG | 0666 : S_IFDIR | 0777;
  attributes.nlink = 1;
  attributes.uid = getuid();
  attributes.gid = getgid();
  attributes.blksize = 4096;
  return attributes;
}

class Server {
 public:
  Server(int device, Unanswered unanswered) : device_(device), unanswered_(unanswered) {}

  void Serve() {
    for (;;) {
      const ssize_t size = read(device_, request_.data(), request_.size());
      if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
      if (size < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
      Answer();
    }
  }

 private:
  template <typename Body>
  const Body& In() const {
    return *reinterpret_cast<const Body*>(request_.data() + sizeof(fuse_in_header));
  }

  void Reply(int error) { Write(error, nullptr, 0); }
  template <typename Body>
  void Reply(const Body& body) {
    Write(0, &body, sizeof body);
  }
  void Write(int error, const void* body, std::size_t size) {
    std::array<char, sizeof(fuse_out_header) + 256> bytes{};
    fuse_out_header header{};
    header.len = static_cast<std::uint32_t>(sizeof header + size);
    header.error = -error;
    header.unique = reinterpret_cast<const fuse_in_header*>(request_.data())->unique;
    std::memcpy(bytes.data(), &header, sizeof header);
    if (size > 0) std::memcpy(bytes.data() + sizeof header, body, size);
    // The write fails if the caller has died meanwhile.
    (void)!write(device_, bytes.data(), header.len);
  }

  void Answer() {
    const auto& header = *reinterpret_cast<const fuse_in_header*>(request_.data());
    switch (header.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = std::min<std::uint32_t>(FUSE_KERNEL_MINOR_VERSION, In<fuse_init_in>().minor);
        out.max_write = 4096;
        out.flags = In<fuse_init_in>().flags & (FUSE_FLOCK_LOCKS | FUSE_POSIX_LOCKS);
        return Reply(out);
      }
      case FUSE_LOOKUP: {
        fuse_entry_out out{};
        out.nodeid = kFileNode;
        out.entry_valid = out.attr_valid = kForeverSeconds;
        out.attr = AttributesOf(kFileNode);
        return Reply(out);
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr_valid = kForeverSeconds;
        out.attr = AttributesOf(header.nodeid);
        return Reply(out);
      }
      case FUSE_OPEN:
        return Reply(fuse_open_out{});
      case FUSE_SETLK:
      case FUSE_SETLKW:
        if (In<fuse_lk_in>().lk.type != F_UNLCK) Reply(0);
        return;
      case FUSE_FLUSH:
        if (unanswered_ != Unanswered::kFlush) Reply(0);
        return;
      // For these requests, no answer is expected, or the server gives none.
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
      case FUSE_RELEASE:
        return;
      default:
        return Reply(ENOSYS);
    }
  }

  int device_;
  Unanswered unanswered_;
  alignas(8) std::array<char, (1U << 16) + FUSE_MIN_READ_BUFFER> request_{};
};

}  // namespace

std::string ObstacleToFuse() {
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return std::string("it cannot open /dev/fuse: ") + std::strerror(errno);
  close(device);
  Process trial = Process::Start([] {
    BecomeUser(kTrialUser, {});
    return EnterUserNamespace() ? 0 : 1;
  });
  return trial.Wait() == 0 ? "" : "an ordinary user cannot make a user namespace";
}

void MakeFuseDevice(const fs::path& path) {
  struct stat status {};
  if (stat("/dev/fuse", &status) != 0 || mknod(path.c_str(), S_IFCHR | 0666, status.st_rdev) != 0 ||
      chmod(path.c_str(), 0666) != 0) {
    throw std::runtime_error("cannot make a device node like /dev/fuse");
  }
}

int ServeHangingFile(const HangingFileSystem& system,
                     const std::function<void(const fs::path& file)>& body) {
  const auto failed = [](const char* what) {
    std::fprintf(stderr, "the FUSE mount failed: cannot %s: %s\n", what, std::strerror(errno));
    return 1;
  };
  if (!EnterUserNamespace()) return failed("make a user namespace");
  const int device = open(system.device.c_str(), O_RDWR | O_CLOEXEC);
  if (device < 0) return failed("open the device");
  const std::string options = "fd=" + std::to_string(device) +
                              ",rootmode=40000,user_id=" + std::to_string(getuid()) +
                              ",group_id=" + std::to_string(getgid());
  if (mount("fuse", system.directory.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return failed("mount");
  }
  const pid_t child = fork();
  if (child < 0) return failed("fork");
  if (child == 0) {
    // Only the server may hold the device, so that the end of the server ends all waits.
    close(device);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(system.directory / kFileName);
    _exit(0);
  }
  signal(SIGCHLD, SIG_IGN);
  Server(device, system.unanswered).Serve();
  return failed("serve");
}

}  // namespace perseus::faults
