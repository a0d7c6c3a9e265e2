#include "perseus/runtime/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/environment.h"

namespace perseus::cuda {
namespace {

std::string NameOfCuda() { return EnvironmentOr("PERSEUS_CUDA_LIBRARY", "libcuda.so.1"); }

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Looks for a library among the libraries of the process. If the library is not loaded, a dlopen()
// with RTLD_NOLOAD would search the file system.
struct LoadedLibrary {
  std::string_view name;  // The wanted name.
  std::string path = {};  // The path that was found. Empty: the library is not loaded.
  static int Look(dl_phdr_info* info, std::size_t, void* argument) {
    auto& library = *static_cast<LoadedLibrary*>(argument);
    if (info->dlpi_name == nullptr || FileName(info->dlpi_name) != library.name) return 0;
    library.path = info->dlpi_name;
    return 1;
  }
};

template <typename Functions>
Result<Functions> LoadCuda(std::string_view least_version) {
  const std::string name = NameOfCuda();
  auto opened = LibrarySymbols::Open(name, RTLD_NODELETE);
  if (!opened) {
    return FailAs(ErrorKind::kSystem,
                  "no CUDA driver: {} (is one installed? PERSEUS_CUDA_LIBRARY names another)",
                  opened.error().Message());
  }
  Functions driver{*std::move(opened)};
  if (driver.library.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {} (a driver of CUDA {} or later is needed)", name,
                  driver.library.missing(), least_version);
  }
  return driver;
}

}  // namespace

std::string Name(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < std::size(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

Result<void> Driver::Check(Code code, const char* what) const {
  if (code == kSuccess) return {};
  const char* name = nullptr;
  if (GetErrorName(code, &name) != kSuccess || name == nullptr) name = "unknown error";
  return FailAs(ErrorKind::kSystem, "cannot {}: {}, CUDA error {}", what, name, code);
}

Result<void> Driver::Try(
    std::initializer_list<std::pair<const char*, std::function<Code()>>> calls) const {
  for (const auto& [what, call] : calls) PERSEUS_RETURN_IF_ERROR(Check(call(), what));
  return {};
}

Result<StreamDriver> LoadForStreams() { return LoadCuda<StreamDriver>("10.1"); }

Result<Driver> LoadForKernels() {
  // Without EAGER, the driver loads a kernel at its first launch. This load may wait for the
  // kernels that already run, and our kernels run until they are stopped.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  PERSEUS_ASSIGN_OR_RETURN(Driver driver, LoadCuda<Driver>("11"));
  PERSEUS_RETURN_IF_ERROR(driver.Check(driver.Init(0), "start CUDA"));
  return driver;
}

bool HasCurrentContext() {
  const std::string name = NameOfCuda();
  LoadedLibrary loaded{FileName(name)};
  ::dl_iterate_phdr(LoadedLibrary::Look, &loaded);
  if (loaded.path.empty()) return false;
  const auto library = LibrarySymbols::Open(loaded.path, RTLD_NOLOAD);
  if (!library) return false;
  Code (*const get_current)(Context*) = library->Optional("cuCtxGetCurrent");
  Context context = nullptr;
  return get_current != nullptr && get_current(&context) == kSuccess && context != nullptr;
}

Result<void> Nccl::Check(int code, const char* what) const {
  if (code == kSuccess) return {};
  return FailAs(ErrorKind::kSystem,
                "NCCL cannot {}: {} (NCCL error {}; NCCL_DEBUG=WARN in the environment shows more)",
                what, GetErrorString(code), code);
}

Result<Nccl> LoadNccl() {
  const std::string name = EnvironmentOr("PERSEUS_NCCL_LIBRARY", "libnccl.so.2");
  auto opened = LibrarySymbols::Open(name, RTLD_NODELETE);
  if (!opened) {
    return FailAs(ErrorKind::kSystem, "NCCL cannot be loaded: {} (PERSEUS_NCCL_LIBRARY names one)",
                  opened.error().Message());
  }
  Nccl nccl{*std::move(opened)};
  if (nccl.library.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {}: it is not NCCL", name, nccl.library.missing());
  }
  return nccl;
}

}  // namespace perseus::cuda
