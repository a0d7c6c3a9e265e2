#include "perseus/runtime/client/gpu_choice.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"

namespace perseus::client {
namespace {

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// A GPU of the list, or a place among the visible GPUs for which the list has no GPU.
struct Shown {
  std::string_view name;  // The UUID, or what the variable says.
  std::string_view bus_id = {};
  const device::Device* device = nullptr;
  const device::RefusedDevice* refused = nullptr;
};
using ShownGpus = std::vector<Shown>;

// Virtual GPUs have no bus. Shorter names come first, so "box-2" comes before "box-10".
bool ComesBefore(const Shown& a, const Shown& b) {
  if (a.bus_id != b.bus_id) return a.bus_id < b.bus_id;
  if (a.name.size() != b.name.size()) return a.name.size() < b.name.size();
  return a.name < b.name;
}

// The GPUs, without parts of one, in the order of the PCI bus.
ShownGpus GpusOf(const device::DeviceList& list) {
  ShownGpus gpus;
  for (const auto& device : list.devices) {
    gpus.push_back({device->info().uuid, device->info().pci_bus_id, device.get(), nullptr});
  }
  for (const device::RefusedDevice& refused : list.refused) {
    if (!refused.uuid.empty() && !IsMigInstance(refused.uuid)) {
      gpus.push_back({refused.uuid, refused.pci_bus_id, nullptr, &refused});
    }
  }
  std::sort(gpus.begin(), gpus.end(), ComesBefore);
  return gpus;
}

// Returns the GPU of this number or name (a UUID, or its beginning). If there is none, returns
// only the name.
Shown Find(const device::DeviceList& list, const ShownGpus& gpus, std::string_view wanted) {
  if (const auto number = ParseNumber<std::size_t>(wanted)) {
    return *number < gpus.size() ? gpus[*number] : Shown{wanted};
  }
  if (wanted.empty()) return {wanted};
  for (const Shown& gpu : gpus) {
    if (gpu.name.starts_with(wanted)) return gpu;
  }
  for (const device::RefusedDevice& refused : list.refused) {
    if (refused.uuid.starts_with(wanted)) return {refused.uuid, {}, nullptr, &refused};
  }
  return {wanted};
}

// Returns the GPUs that the value of a variable names, in its order.
ShownGpus Select(const device::DeviceList& list, const ShownGpus& gpus, const char* names) {
  ShownGpus selected;
  for (const std::string_view name : SplitAtCommas(names)) {
    selected.push_back(Find(list, gpus, name));
  }
  return selected;
}

bool AreAmd(const device::DeviceList& list) {
  return !list.devices.empty() && list.devices.front()->info().backend == "rocm";
}

// The values of the variables that apply to these GPUs, in the order in which they choose.
std::vector<const char*> Filters(const VisibleGpus& visible, bool are_amd) {
  std::vector<const char*> filters = {visible.cuda};
  if (are_amd) {
    const bool has_hip = visible.hip != nullptr && *visible.hip != '\0';
    const bool has_cuda = visible.cuda != nullptr && *visible.cuda != '\0';
    filters = {visible.rocr, has_hip ? visible.hip : has_cuda ? visible.cuda : nullptr};
  }
  std::erase(filters, nullptr);
  return filters;
}

ChosenGpu Take(device::DeviceList& list, const device::Device* device) {
  const auto found = std::find_if(list.devices.begin(), list.devices.end(),
                                  [device](const auto& one) { return one.get() == device; });
  ChosenGpu chosen;
  chosen.uuid = device->info().uuid;
  chosen.device = std::move(*found);
  chosen.clock = list.clock;
  list.devices.erase(found);
  return chosen;
}

}  // namespace

VisibleGpus VisibleGpus::FromEnvironment() {
  return {std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("HIP_VISIBLE_DEVICES"),
          std::getenv("ROCR_VISIBLE_DEVICES")};
}

bool IsMigInstance(std::string_view name) { return name.starts_with("MIG-"); }

tl::unexpected<Error> FailForMigInstance(std::string_view name) {
  return Fail(
      "{} is a MIG instance, without a clock of its own (use whole GPUs: nvidia-smi -mig 0)",
      Excerpt(name));
}

Result<ChosenGpu> ChooseGpu(device::DeviceList& list, const std::string& wanted,
                            const VisibleGpus& visible) {
  const ShownGpus all = GpusOf(list);
  const std::vector<const char*> filters = Filters(visible, AreAmd(list));
  ShownGpus gpus = all;
  for (const char* filter : filters) gpus = Select(list, gpus, filter);
  if (wanted.empty() && gpus.size() != 1) {
    if (filters.empty()) {
      return Fail("which of {} GPUs? (set PERSEUS_GPU to its UUID, or to its number among them)",
                  gpus.size());
    }
    return Fail("which of the visible GPUs {}? (set PERSEUS_GPU to its number among them)",
                Excerpt(filters.back()));
  }
  const bool is_number = wanted.empty() || ParseNumber<std::size_t>(wanted).has_value();
  const Shown found = Find(list, is_number ? gpus : all, wanted.empty() ? "0" : wanted);
  if (found.refused != nullptr) {
    return Fail("{} cannot be used: {}", found.refused->what, found.refused->why);
  }
  if (found.device == nullptr) {
    if (IsMigInstance(found.name)) return FailForMigInstance(found.name);
    return Fail("no GPU {} here{}: there are {} (set PERSEUS_GPU to a UUID of perseus gpu list)",
                Excerpt(wanted.empty() ? "0" : wanted),
                filters.empty() ? "" : " among the visible ones", list.devices.size());
  }
  return Take(list, found.device);
}

}  // namespace perseus::client
