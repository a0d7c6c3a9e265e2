// Cgroups for tests. They need root.
#pragma once

#include <filesystem>
#include <memory>

#include "perseus/base/file_descriptor.h"

namespace perseus {

// A cgroup whose processes may use every device but /dev/zero (1:5), as a batch system confines a
// job to its GPUs.
class DeviceCgroup {
 public:
  enum Version {
    kVersion1,  // devices.deny of the devices controller.
    kVersion2,  // A device program (BPF).
  };
  // Null if this system has no such hierarchy, or does not let this process make a cgroup in it.
  static std::unique_ptr<DeviceCgroup> DenyingZero(Version version);
  ~DeviceCgroup();
  DeviceCgroup(const DeviceCgroup&) = delete;
  DeviceCgroup& operator=(const DeviceCgroup&) = delete;

  // As in /proc/PID/cgroup: "/perseus-test-4711-0".
  std::filesystem::path name() const { return "/" / directory_.filename(); }
  std::filesystem::path procs() const { return directory_ / "cgroup.procs"; }
  // Moves this process into the cgroup.
  bool Join() const;
  // Version 2. False if the kernel cannot.
  bool Freeze() const;
  bool Thaw() const;
  bool IsEmpty() const;

 private:
  explicit DeviceCgroup(std::filesystem::path directory) : directory_(std::move(directory)) {}
  bool DenyZero(Version version);

  std::filesystem::path directory_;
  FileDescriptor program_;
};

// A cgroup of the freezer of cgroup v1, whose processes do not even end while they are frozen.
class FreezerCgroup {
 public:
  // Null if this system has none, or does not let this process make one.
  static std::unique_ptr<FreezerCgroup> Make();
  ~FreezerCgroup();  // Thaws it.
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
