// Cgroups for tests. They need root.
#pragma once

#include <filesystem>
#include <memory>

#include "perseus/base/file_descriptor.h"

namespace perseus {

// A cgroup whose processes may use every device except /dev/zero (1:5). A batch system confines a
// job to its GPUs in the same way.
class DeviceCgroup {
 public:
  enum Version {
    kVersion1,  // devices.deny of the devices controller.
    kVersion2,  // A device program (BPF).
  };
  // Returns null if this system has no such hierarchy, or does not let this process create a cgroup
  // in it.
  static std::unique_ptr<DeviceCgroup> DenyingZero(Version version);
  ~DeviceCgroup();
  DeviceCgroup(const DeviceCgroup&) = delete;
  DeviceCgroup& operator=(const DeviceCgroup&) = delete;

  // The name as in /proc/PID/cgroup: "/perseus-test-4711-0".
  std::filesystem::path name() const { return "/" / directory_.filename(); }
  std::filesystem::path procs() const { return directory_ / "cgroup.procs"; }
  // Moves this process into the cgroup.
  bool Join() const;
  // Freezes the cgroup. Only for version 2. Returns false if the kernel cannot do this.
  bool Freeze() const;
  bool Thaw() const;
  bool IsEmpty() const;

 private:
  explicit DeviceCgroup(std::filesystem::path directory) : directory_(std::move(directory)) {}
  bool DenyZero(Version version);

  std::filesystem::path directory_;
  FileDescriptor program_;
};

// A cgroup of the freezer of cgroup v1. While its processes are frozen, they do not even end.
class FreezerCgroup {
 public:
  // Returns null if this system has no such freezer, or does not let this process create a cgroup
  // in it.
  static std::unique_ptr<FreezerCgroup> Make();
  ~FreezerCgroup();  // Thaws the cgroup.
  FreezerCgroup(const FreezerCgroup&) = delete;
  FreezerCgroup& operator=(const FreezerCgroup&) = delete;

  std::filesystem::path procs() const { return directory_ / "cgroup.procs"; }
  bool Freeze() const;
  bool Thaw() const;
  bool IsEmpty() const;

 private:
  explicit FreezerCgroup(std::filesystem::path directory) : directory_(std::move(directory)) {}
  std::filesystem::path directory_;
};

}  // namespace perseus
