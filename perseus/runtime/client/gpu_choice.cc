#include "perseus/runtime/client/gpu_choice.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
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

// A GPU, or a place among the visible GPUs at which there is none.
struct Shown {
  std::string_view name;  // The UUID, or what the variable says.
  std::string_view bus_id = {};
  std::optional<std::size_t> place = {};  // In FoundDevices::usable.
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
ShownGpus GpusOf(const device::FoundDevices& found) {
  ShownGpus gpus;
  for (std::size_t i = 0; i < found.usable.size(); ++i) {
    gpus.push_back({found.usable[i].uuid, found.usable[i].pci_bus_id, i});
  }
  for (const device::RefusedDevice& refused : found.refused) {
    if (!refused.uuid.empty() && !IsMigInstance(refused.uuid)) {
      gpus.push_back({refused.uuid, refused.pci_bus_id, std::nullopt, &refused});
    }
  }
  std::sort(gpus.begin(), gpus.end(), ComesBefore);
  return gpus;
}

// Returns the GPU of this number or name (a UUID, or its beginning). If there is none, returns
// only the name.
Shown Find(const device::FoundDevices& found, const ShownGpus& gpus, std::string_view wanted) {
  if (const auto number = ParseNumber<std::size_t>(wanted)) {
    return *number < gpus.size() ? gpus[*number] : Shown{wanted};
  }
  if (wanted.empty()) return {wanted};
  for (const Shown& gpu : gpus) {
    if (gpu.name.starts_with(wanted)) return gpu;
  }
  for (const device::RefusedDevice& refused : found.refused) {
    if (refused.uuid.starts_with(wanted)) return {refused.uuid, {}, std::nullopt, &refused};
  }
  return {wanted};
}

// Returns the GPUs that the value of a variable names, in its order.
ShownGpus Select(const device::FoundDevices& found, const ShownGpus& gpus, const char* names) {
  ShownGpus selected;
  for (const std::string_view name : SplitAtCommas(names)) {
    selected.push_back(Find(found, gpus, name));
  }
  return selected;
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

// Returns the UUID of the wanted GPU, if the user's settings for NVIDIA GPUs contain it: `wanted`
// is the UUID, or a number in the list `visible` (CUDA_VISIBLE_DEVICES). If `wanted` is empty, a
// list of one GPU is enough. Otherwise returns a text that is no UUID, such as a number.
std::string UuidOf(const std::string& wanted, const char* visible) {
  const auto number = ParseNumber<std::size_t>(wanted.empty() ? "0" : wanted);
  if (!number || visible == nullptr) return wanted;
  const auto names = SplitAtCommas(visible);
  const bool is_chosen = *number < names.size() && (!wanted.empty() || names.size() == 1);
  return is_chosen ? std::string(names[*number]) : std::string();
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

Result<std::size_t> ChooseGpu(const device::FoundDevices& found, const std::string& wanted,
                              const VisibleGpus& visible) {
  const ShownGpus all = GpusOf(found);
  const std::vector<const char*> filters = Filters(visible, found.are_amd);
  ShownGpus gpus = all;
  for (const char* filter : filters) gpus = Select(found, gpus, filter);
  if (wanted.empty() && gpus.size() != 1) {
    if (filters.empty()) {
      return Fail("which of {} GPUs? (set PERSEUS_GPU to its UUID, or to its number among them)",
                  gpus.size());
    }
    return Fail("which of the visible GPUs {}? (set PERSEUS_GPU to its number among them)",
                Excerpt(filters.back()));
  }
  const std::string_view name = wanted.empty() ? std::string_view("0") : wanted;
  const bool is_number = ParseNumber<std::size_t>(name).has_value();
  const Shown one = Find(found, is_number ? gpus : all, name);
  if (one.place) return *one.place;
  if (one.refused != nullptr) {
    return Fail("{} cannot be used: {}", one.refused->what, one.refused->why);
  }
  if (IsMigInstance(one.name)) return FailForMigInstance(one.name);
  return Fail("no GPU {} here{}: there are {} (set PERSEUS_GPU to a UUID of perseus gpu list)",
              Excerpt(name), filters.empty() ? "" : " among the visible ones", found.usable.size());
}

Result<ChosenGpu> OpenGpu(std::string_view devices, device::OpenVirtual open_virtual,
                          const std::string& wanted, const VisibleGpus& visible) {
  PERSEUS_ASSIGN_OR_RETURN(device::DeviceList list,
                           device::OpenDevice(devices, open_virtual,
                                              {.uuid = UuidOf(wanted, visible.cuda),
                                               .choose = [&](const device::FoundDevices& found) {
                                                 return ChooseGpu(found, wanted, visible);
                                               }}));
  ChosenGpu chosen;
  chosen.uuid = list.devices.front()->info().uuid;
  chosen.device = std::move(list.devices.front());
  chosen.clock = list.clock;
  return chosen;
}

}  // namespace perseus::client
