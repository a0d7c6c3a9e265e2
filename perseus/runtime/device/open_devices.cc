#include "perseus/runtime/device/open_devices.h"

#include "perseus/base/excerpt.h"

namespace perseus::device {
namespace {

bool HasAny(const Result<DeviceList>& list) {
  return list && (!list->devices.empty() || !list->refused.empty());
}

Result<DeviceList> OpenAnyDevices() {
  Result<DeviceList> nvml = OpenNvmlDevices("");
  if (HasAny(nvml)) return nvml;
  Result<DeviceList> rocm = OpenRocmDevices("");
  if (HasAny(rocm)) return rocm;
  const auto why = [](const Result<DeviceList>& list) {
    return list ? std::string("no GPU") : list.error().Message();
  };
  return FailAs(ErrorKind::kSystem, "no GPU found. NVIDIA: {}. AMD: {}", why(nvml), why(rocm));
}

}  // namespace

Result<DeviceList> OpenDevices(std::string_view which, OpenVirtual open_virtual) {
  if (which == "auto") return OpenAnyDevices();
  const std::size_t colon = which.find(':');
  const std::string_view backend = which.substr(0, colon);
  const bool has_file = colon != std::string_view::npos;
  const std::string_view file = has_file ? which.substr(colon + 1) : std::string_view();
  if (!has_file || !file.empty()) {
    if (backend == "nvml") return OpenNvmlDevices(file);
    if (backend == "rocm") return OpenRocmDevices(file);
    if (backend == "virtual" && has_file) return open_virtual(file);
  }
  return Fail(
      "{} is no kind of GPU (write auto, nvml, nvml:LIBRARY, rocm, rocm:LIBRARY or virtual:FILE)",
      Excerpt(which));
}

}  // namespace perseus::device
