#include "tests/support/device_cgroup.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace perseus {
namespace {

namespace fs = std::filesystem;

constexpr int kZeroMinor = 5;

std::optional<fs::path> RootOf(DeviceCgroup::Version version) {
  const fs::path mounted = "/sys/fs/cgroup";
  if (version == DeviceCgroup::kVersion1) {
    return fs::exists(mounted / "devices/devices.list") ? std::optional(mounted / "devices")
                                                        : std::nullopt;
  }
  for (const fs::path& root : {mounted, mounted / "unified"}) {
    if (fs::exists(root / "cgroup.controllers")) return root;
  }
  return std::nullopt;
}

bool WriteText(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

bpf_insn Instruction(int code, int destination, int source, int offset, int immediate) {
  bpf_insn instruction{};
  instruction.code = static_cast<__u8>(code);
  instruction.dst_reg = static_cast<__u8>(destination & 0xf);
  instruction.src_reg = static_cast<__u8>(source & 0xf);
  instruction.off = static_cast<__s16>(offset);
  instruction.imm = immediate;
  return instruction;
}

// The program is: return context->minor != 5, for a struct bpf_cgroup_dev_ctx {access_type, major,
// minor}.
FileDescriptor LoadProgram() {
  const bpf_insn program[] = {
      Instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, 8, 0),
      Instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1),
      Instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_2, 0, 1, kZeroMinor),
      Instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0),
      Instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
  static constexpr char kLicense[] = "GPL";
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  load.insns = reinterpret_cast<__u64>(program);
  load.insn_cnt = std::size(program);
  load.license = reinterpret_cast<__u64>(kLicense);
  return FileDescriptor(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load)));
}

// Creates a new cgroup. Returns nullopt if this process may not create one.
std::optional<fs::path> MakeCgroup(const fs::path& root) {
  static int made = 0;
  const fs::path directory =
      root / ("perseus-test-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
  if (::mkdir(directory.c_str(), 0755) != 0) return std::nullopt;
  return directory;
}

void RemoveCgroup(const fs::path& directory) {
  // A process that has just ended may still be in the cgroup for a moment.
  for (int i = 0; i < 100 && ::rmdir(directory.c_str()) != 0; ++i) ::usleep(10'000);
}

bool HasProcess(const fs::path& procs) {
  std::ifstream processes(procs);
  int first = 0;
  return static_cast<bool>(processes >> first);
}

}  // namespace

std::unique_ptr<DeviceCgroup> DeviceCgroup::DenyingZero(Version version) {
  const std::optional<fs::path> root = RootOf(version);
  if (!root) return nullptr;
  const auto directory = MakeCgroup(*root);
  if (!directory) return nullptr;
  std::unique_ptr<DeviceCgroup> cgroup(new DeviceCgroup(*directory));
  return cgroup->DenyZero(version) ? std::move(cgroup) : nullptr;
}

DeviceCgroup::~DeviceCgroup() {
  program_ = FileDescriptor();
  RemoveCgroup(directory_);
}

bool DeviceCgroup::DenyZero(Version version) {
  if (version == kVersion1) return WriteText(directory_ / "devices.deny", "c 1:5 rwm");
  program_ = LoadProgram();
  const FileDescriptor directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!program_ || !directory) return false;
  bpf_attr attach{};
  attach.target_fd = static_cast<__u32>(directory.get());
  attach.attach_bpf_fd = static_cast<__u32>(program_.get());
  attach.attach_type = BPF_CGROUP_DEVICE;
  return ::syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) == 0;
}

bool DeviceCgroup::Join() const { return WriteText(procs(), "0"); }

bool DeviceCgroup::Freeze() const { return WriteText(directory_ / "cgroup.freeze", "1"); }
bool DeviceCgroup::Thaw() const { return WriteText(directory_ / "cgroup.freeze", "0"); }

bool DeviceCgroup::IsEmpty() const { return !HasProcess(procs()); }

std::unique_ptr<FreezerCgroup> FreezerCgroup::Make() {
  const fs::path root = "/sys/fs/cgroup/freezer";
  if (!fs::exists(root / "cgroup.procs")) return nullptr;
  const auto directory = MakeCgroup(root);
  if (!directory) return nullptr;
  return std::unique_ptr<FreezerCgroup>(new FreezerCgroup(*directory));
}

FreezerCgroup::~FreezerCgroup() {
  static_cast<void>(Thaw());
  RemoveCgroup(directory_);
}

bool FreezerCgroup::Freeze() const { return WriteText(directory_ / "freezer.state", "FROZEN"); }
bool FreezerCgroup::Thaw() const { return WriteText(directory_ / "freezer.state", "THAWED"); }
bool FreezerCgroup::IsEmpty() const { return !HasProcess(procs()); }

}  // namespace perseus
