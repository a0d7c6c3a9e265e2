#include "perseus/runtime/device/open_devices.h"

#include <utility>

#include "perseus/base/excerpt.h"

namespace perseus::device {
namespace {

bool HasAny(const Result<DeviceList>& list) {
  return list && (!list->devices.empty() || !list->refused.empty());
}

// The backend from which the GPUs come.
struct Source {
  std::string_view backend;  // "auto", "nvml", "rocm" or "virtual".
  std::string_view file;     // Empty: by the loader's rules.
};

Result<Source> SourceOf(std::string_view which) {
  if (which == "auto") return Source{which, {}};
  const std::size_t colon = which.find(':');
  const bool has_file = colon != std::string_view::npos;
  const Source source{which.substr(0, colon), has_file ? which.substr(colon + 1) : ""};
  const bool is_known = source.backend == "nvml" || source.backend == "rocm" ||
                        (source.backend == "virtual" && has_file);
  if (is_known && (!has_file || !source.file.empty())) return source;
  return Fail(
      "{} is no kind of GPU (write auto, nvml, nvml:LIBRARY, rocm, rocm:LIBRARY or virtual:FILE)",
      Excerpt(which));
}

// Opens the GPUs of the source. `open_nvml` takes a file and opens all GPUs or one GPU.
template <typename OpenNvml>
Result<DeviceList> OpenFrom(const Source& source, OpenVirtual open_virtual, OpenNvml open_nvml) {
  if (source.backend == "nvml") return open_nvml(source.file);
  if (source.backend == "rocm") return OpenRocmDevices(source.file);
  if (source.backend == "virtual") return open_virtual(source.file);
  Result<DeviceList> nvml = open_nvml(std::string_view());
  // NVIDIA's GPUs exist, but none of them was wanted.
  if (HasAny(nvml) || (!nvml && nvml.error().kind == ErrorKind::kInput)) return nvml;
  Result<DeviceList> rocm = OpenRocmDevices("");
  if (HasAny(rocm)) return rocm;
  const auto why = [](const Result<DeviceList>& list) {
    return list ? std::string("no GPU") : list.error().Message();
  };
  return FailAs(ErrorKind::kSystem, "no GPU found. NVIDIA: {}. AMD: {}", why(nvml), why(rocm));
}

}  // namespace

Result<DeviceList> OpenDevices(std::string_view which, OpenVirtual open_virtual) {
  PERSEUS_ASSIGN_OR_RETURN(const Source source, SourceOf(which));
  return OpenFrom(source, open_virtual,
                  [](std::string_view file) { return OpenNvmlDevices(file); });
}

Result<DeviceList> OpenDevice(std::string_view which, OpenVirtual open_virtual,
                              const WantedDevice& wanted) {
  PERSEUS_ASSIGN_OR_RETURN(const Source source, SourceOf(which));
  bool is_chosen = false;
  PERSEUS_ASSIGN_OR_RETURN(DeviceList list, OpenFrom(source, open_virtual, [&](auto file) {
                             Result<DeviceList> one = OpenNvmlDevice(file, wanted);
                             is_chosen = one && !one->devices.empty();
                             return one;
                           }));
  if (is_chosen) return list;
  FoundDevices found;
  found.refused = list.refused;
  for (const auto& device : list.devices) {
    found.are_amd = device->info().backend == "rocm";
    found.usable.push_back({device->info().uuid, device->info().pci_bus_id});
  }
  PERSEUS_ASSIGN_OR_RETURN(const std::size_t chosen, wanted.choose(found));
  std::swap(list.devices[0], list.devices[chosen]);
  list.devices.resize(1);
  return list;
}

}  // namespace perseus::device
