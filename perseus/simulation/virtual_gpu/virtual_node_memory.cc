#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <new>
#include <type_traits>
#include <utility>

#include "perseus/base/host.h"
#include "perseus/base/system_cause.h"

namespace perseus::virtual_gpu {
namespace {

// Increment the last digits with every change of the layout.
constexpr char kMagic[16] = "perseus-vgpu-05";
constexpr Nanoseconds kLongestSleep = 100'000'000;  // Real time.
constexpr int kLongestWait = 5;                     // Seconds, real time.
// Claims are locks of bytes beyond the end of the file.
constexpr off_t kFirstClaim = off_t{1} << 40;

static_assert(std::is_trivially_copyable_v<VirtualCell>);

tl::unexpected<Error> SystemFailure(const std::filesystem::path& path, std::string_view what) {
  return SystemFail(errno, fmt::format("cannot {}", what), InFile(path.string()));
}

struct flock ClaimOf(int gpu) {
  struct flock claim {};
  claim.l_type = F_WRLCK;
  claim.l_whence = SEEK_SET;
  claim.l_start = kFirstClaim + gpu;
  claim.l_len = 1;
  return claim;
}

}  // namespace

// ---- The layout ----

struct VirtualNodeMemory::Slot {
  pthread_mutex_t mutex;  // Robust; guards the copies.
  std::atomic<std::uint32_t> version;
  VirtualCell copies[2];  // version % 2 is the valid one.
};

struct VirtualNodeMemory::Layout {
  char magic[16];
  std::uint64_t size;  // The file size. Another build may have structures of another size.
  char boot_id[64];    // CLOCK_MONOTONIC starts again with every boot.
  Nanoseconds anchor;  // The clock's time of virtual time 0.
  bool has_shared_clock;
  double rate;
  std::uint64_t seed;
  std::int32_t gpus;
};

struct VirtualNodeMemory::Opened {
  FileDescriptor file;  // Closed: no file exists.
  void* address = nullptr;
};

// Holds a slot's mutex.
class VirtualNodeMemory::Guard {
 public:
  explicit Guard(Slot& slot) : slot_(slot) {
    timespec deadline{};
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += kLongestWait;
    error_ = pthread_mutex_timedlock(&slot_.mutex, &deadline);
    // The owner died. Its unfinished update is in the invalid copy.
    if (error_ == EOWNERDEAD) error_ = pthread_mutex_consistent(&slot_.mutex);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() {
    if (error_ == 0) pthread_mutex_unlock(&slot_.mutex);
  }
  int error() const { return error_; }

 private:
  Slot& slot_;
  int error_;
};

std::size_t VirtualNodeMemory::SizeFor(int gpus) {
  constexpr std::size_t kFirst =
      (sizeof(Layout) + alignof(Slot) - 1) / alignof(Slot) * alignof(Slot);
  return kFirst + static_cast<std::size_t>(gpus) * sizeof(Slot);
}

VirtualNodeMemory::Slot& VirtualNodeMemory::SlotOf(int gpu) const {
  return *reinterpret_cast<Slot*>(static_cast<char*>(address_) + SizeFor(gpu));
}

// ---- Creating and opening the file ----

Result<void> VirtualNodeMemory::Create(const VirtualNodeSpec& spec, Nanoseconds anchor) {
  const std::size_t size = SizeFor(spec.gpus);
  const std::string temporary = fmt::format("{}.{}", spec.state.string(), getpid());
  const FileDescriptor file(open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return SystemFailure(temporary, "make the state of a virtual node");
  void* address = MAP_FAILED;
  // Allocates the disk space now. Otherwise a full disk causes a SIGBUS later.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(size)); error != 0) {
    errno = error;
  } else {
    address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (address == MAP_FAILED) {
    const auto failure = SystemFailure(temporary, "make the state of a virtual node");
    unlink(temporary.c_str());
    return failure;
  }
  auto* layout = new (address) Layout{};
  std::memcpy(layout->magic, kMagic, sizeof kMagic);
  layout->size = size;
  BootId().value_or("").copy(layout->boot_id, sizeof layout->boot_id - 1);
  layout->anchor = anchor;
  layout->has_shared_clock = !spec.clock.empty();
  layout->rate = spec.rate;
  layout->seed = spec.seed;
  layout->gpus = spec.gpus;

  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  SplitMix64 seeds{spec.seed};
  for (int gpu = 0; gpu < spec.gpus; ++gpu) {
    const VirtualCell cell{VirtualGpu(spec.ModelOf(gpu), seeds(), 0), 0, 0};
    auto* slot = new (static_cast<char*>(address) + SizeFor(gpu)) Slot{{}, 0, {cell, cell}};
    pthread_mutex_init(&slot->mutex, &attributes);
  }
  pthread_mutexattr_destroy(&attributes);
  munmap(address, size);
  // The first process creates the file, and the others use it.
  const bool exists = link(temporary.c_str(), spec.state.c_str()) == 0 || errno == EEXIST;
  const auto failure = SystemFailure(spec.state, "make the state of a virtual node");
  unlink(temporary.c_str());
  if (!exists) return failure;
  return {};
}

Result<VirtualNodeMemory::Opened> VirtualNodeMemory::OpenExisting(const VirtualNodeSpec& spec) {
  FileDescriptor file(open(spec.state.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) return Opened{};
  if (!file) return SystemFailure(spec.state, "open the state of a virtual node");
  Layout layout{};
  struct stat status {};
  if (pread(file.get(), &layout, sizeof layout, 0) != sizeof layout ||
      fstat(file.get(), &status) != 0 || std::memcmp(layout.magic, kMagic, sizeof kMagic) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != layout.size) {
    return Fail(InFile(spec.state.string()),
                "is not the state of a virtual node, or has another version (remove it, or name "
                "another file: state = \"...\" in {})",
                spec.description.string());
  }
  if (BootId().value_or("") != layout.boot_id) {
    unlink(spec.state.c_str());
    return Opened{};
  }
  void* address = MAP_FAILED;
  const bool is_same = layout.size == SizeFor(spec.gpus) && layout.rate == spec.rate &&
                       layout.has_shared_clock == !spec.clock.empty() && layout.seed == spec.seed &&
                       layout.gpus == spec.gpus;
  if (is_same) {
    address = mmap(nullptr, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) return SystemFailure(spec.state, "map the state of a virtual node");
    bool has_models = true;
    for (int gpu = 0; gpu < spec.gpus; ++gpu) {
      const auto* slot =
          reinterpret_cast<const Slot*>(static_cast<const char*>(address) + SizeFor(gpu));
      // The model is the same in both copies and never changes, so this needs no mutex.
      has_models = has_models && slot->copies[0].gpu.model() == spec.ModelOf(gpu);
    }
    if (has_models) return Opened{std::move(file), address};
    munmap(address, layout.size);
  }
  return Fail(InFile(spec.state.string()),
              "was created from other contents of {} (remove it once nothing uses it)",
              spec.description.string());
}

Result<std::shared_ptr<VirtualNodeMemory>> VirtualNodeMemory::Open(const VirtualNodeSpec& spec,
                                                                   std::shared_ptr<Clock> clock) {
  // One process at a time looks for the file and creates it, because a file of an earlier boot is
  // removed. The kernel releases this lock when the process dies.
  FileDescriptor lock(open(spec.description.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock) return SystemFailure(spec.description, "read");
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  Result<Opened> opened = OpenExisting(spec);
  if (opened && !opened->file) {
    const auto created = Create(spec, clock->Now());
    opened = created ? OpenExisting(spec) : Result<Opened>(Fail(created));
  }
  lock = {};
  if (!opened) return Fail(opened);
  if (!opened->file) {
    return FailAs(ErrorKind::kSystem, InFile(spec.state.string()),
                  "was removed while it was opened (try again)");
  }
  std::shared_ptr<VirtualNodeMemory> memory(
      new VirtualNodeMemory(spec, std::move(clock), std::move(opened->file), opened->address));
  if (memory->IsAheadOfClock()) {
    return Fail(InFile(spec.state.string()),
                "is from an earlier clock {} (remove both once nothing uses them)",
                spec.clock.string());
  }
  return memory;
}

VirtualNodeMemory::VirtualNodeMemory(VirtualNodeSpec spec, std::shared_ptr<Clock> clock,
                                     FileDescriptor file, void* address)
    : spec_(std::move(spec)), clock_(std::move(clock)), file_(std::move(file)), address_(address) {}

VirtualNodeMemory::~VirtualNodeMemory() { munmap(address_, SizeFor(spec_.gpus)); }

// ---- Time ----

Nanoseconds VirtualNodeMemory::ToVirtual(Nanoseconds real) const {
  const auto* layout = static_cast<const Layout*>(address_);
  return static_cast<Nanoseconds>(
      std::floor(static_cast<double>(real - layout->anchor) * spec_.rate));
}

Nanoseconds VirtualNodeMemory::ToReal(Nanoseconds time) const {
  const auto* layout = static_cast<const Layout*>(address_);
  Nanoseconds real =
      layout->anchor + static_cast<Nanoseconds>(std::floor(static_cast<double>(time) / spec_.rate));
  while (ToVirtual(real) < time) ++real;  // Corrects the rounding.
  return real;
}

Nanoseconds VirtualNodeMemory::Now() const { return ToVirtual(clock_->Now()); }

void VirtualNodeMemory::WaitWhile(int gpu, std::uint32_t version, Nanoseconds until) {
  const Nanoseconds look_again = clock_->Now() + kLongestSleep;
  clock_->WaitWhile(SlotOf(gpu).version, version, std::min(ToReal(until), look_again));
}

// ---- Cells ----

tl::unexpected<Error> VirtualNodeMemory::StoppedHolder(int gpu, int error) const {
  return FailAs(ErrorKind::kSystem, InFile(spec_.state.string()),
                "GPU {} is held by a process that is stopped: {} (continue it or end it)", gpu,
                std::strerror(error));
}

Result<void> VirtualNodeMemory::Update(
    int gpu, const std::function<void(VirtualCell&, Nanoseconds)>& change) {
  Slot& slot = SlotOf(gpu);
  const Guard guard(slot);
  if (guard.error() != 0) return StoppedHolder(gpu, guard.error());
  const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
  VirtualCell& next = slot.copies[(version + 1) % 2];
  next = slot.copies[version % 2];
  change(next, Now());
  slot.version.store(version + 1, std::memory_order_release);
  WakeAll(slot.version);
  return {};
}

Result<VirtualNodeMemory::Snapshot> VirtualNodeMemory::ReadAsItIs(int gpu) {
  Slot& slot = SlotOf(gpu);
  const Guard guard(slot);
  if (guard.error() != 0) return StoppedHolder(gpu, guard.error());
  const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
  return Snapshot{slot.copies[version % 2], Now(), version};
}

bool VirtualNodeMemory::IsAheadOfClock() {
  for (int gpu = 0; gpu < spec_.gpus; ++gpu) {
    // A holder that is stopped is reported later, to the callers that wait for it.
    const auto snapshot = ReadAsItIs(gpu);
    if (snapshot && snapshot->cell.gpu.at() > snapshot->now) return true;
  }
  return false;
}

Result<VirtualNodeMemory::Snapshot> VirtualNodeMemory::Read(int gpu) {
  auto snapshot = ReadAsItIs(gpu);
  if (!snapshot || snapshot->cell.worker == 0 || IsClaimed(gpu)) return snapshot;
  const auto updated = Update(gpu, [&](VirtualCell& cell, Nanoseconds now) {
    // Another process may be the worker by now.
    if (cell.worker == 0 || IsClaimed(gpu)) return;
    cell.gpu.Stop(now);
    cell.worker = 0;
  });
  if (!updated) return Fail(updated);
  return ReadAsItIs(gpu);
}

// ---- Claims ----

VirtualNodeMemory::Claim::Claim(std::shared_ptr<VirtualNodeMemory> memory, int gpu,
                                FileDescriptor file)
    : memory_(std::move(memory)), gpu_(gpu), file_(std::move(file)) {}

VirtualNodeMemory::Claim::~Claim() {
  // If this fails, the next reader finds that no process has the claim.
  (void)memory_->Update(gpu_, [](VirtualCell& cell, Nanoseconds now) {
    cell.gpu.Stop(now);
    cell.worker = 0;
  });
}

// The lock belongs to the open file description (OFD). It ends with the process, no matter which
// thread took it, and does not depend on other descriptors of the process. So each claim opens the
// file again.
Result<std::unique_ptr<VirtualNodeMemory::Claim>> VirtualNodeMemory::ClaimGpu(
    const std::shared_ptr<VirtualNodeMemory>& memory, int gpu) {
  const std::string path = fmt::format("/proc/self/fd/{}", memory->file_.get());
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return SystemFailure(memory->spec_.state, "open the state of a virtual node");
  struct flock claim = ClaimOf(gpu);
  if (fcntl(file.get(), F_OFD_SETLK, &claim) != 0) {
    const auto snapshot = memory->Read(gpu);
    return FailAs(ErrorKind::kSystem, InFile(memory->spec_.description.string()),
                  "process {} computes on GPU {} (end it, or use another GPU)",
                  snapshot ? snapshot->cell.worker : 0, gpu);
  }
  auto made = std::make_unique<Claim>(memory, gpu, std::move(file));
  const auto updated = memory->Update(gpu, [](VirtualCell& cell, Nanoseconds now) {
    cell.gpu.Stop(now);  // A dead process may have left it busy.
    cell.worker = getpid();
  });
  if (!updated) return Fail(updated);
  return made;
}

bool VirtualNodeMemory::IsClaimed(int gpu) const {
  struct flock claim = ClaimOf(gpu);
  return fcntl(file_.get(), F_OFD_GETLK, &claim) != 0 || claim.l_type != F_UNLCK;
}

}  // namespace perseus::virtual_gpu
