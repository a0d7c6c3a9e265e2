#include "perseus/runtime/node_devices/open_devices.h"

#include "perseus/base/excerpt.h"
#include "perseus/runtime/device/nvml_devices.h"
#include "perseus/runtime/device/rocm_devices.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::node_devices {
namespace {

bool HasAny(const Result<device::DeviceList>& list) {
  return list && (!list->devices.empty() || !list->refused.empty());
}

Result<device::DeviceList> OpenAnyDevices() {
  Result<device::DeviceList> nvml = device::OpenNvmlDevices("");
  if (HasAny(nvml)) return nvml;
  Result<device::DeviceList> rocm = device::OpenRocmDevices("");
  if (HasAny(rocm)) return rocm;
  const auto why = [](const Result<device::DeviceList>& list) {
    return list ? std::string("no GPU") : list.error().message;
  };
  return FailAs(ErrorKind::kSystem, "no GPU found. NVIDIA: {}. AMD: {}", why(nvml), why(rocm));
}

}  // namespace

Result<device::DeviceList> OpenDevices(std::string_view which) {
  if (which == "auto") return OpenAnyDevices();
  const std::size_t colon = which.find(':');
  const std::string_view backend = which.substr(0, colon);
  const bool has_file = colon != std::string_view::npos;
  const std::string_view file = has_file ? which.substr(colon + 1) : std::string_view();
  if (!has_file || !file.empty()) {
    if (backend == "nvml") return device::OpenNvmlDevices(file);
    if (backend == "rocm") return device::OpenRocmDevices(file);
    if (backend == "virtual" && has_file) return virtual_gpu::OpenVirtualNode(file);
  }
  return Fail(
      "{} is no kind of GPU (write auto, nvml, nvml:LIBRARY, rocm, rocm:LIBRARY or virtual:FILE)",
      Excerpt(which));
}

}  // namespace perseus::node_devices
