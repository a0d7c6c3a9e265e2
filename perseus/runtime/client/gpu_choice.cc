#include "perseus/runtime/client/gpu_choice.h"

#include <algorithm>
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

// Virtual GPUs have no bus. Shorter names come first, so "box-2" comes before "box-10".
bool ComesBefore(const device::DeviceInfo& a, const device::DeviceInfo& b) {
  if (a.pci_bus_id != b.pci_bus_id) return a.pci_bus_id < b.pci_bus_id;
  if (a.uuid.size() != b.uuid.size()) return a.uuid.size() < b.uuid.size();
  return a.uuid < b.uuid;
}

using Devices = std::vector<std::unique_ptr<device::Device>>;

Devices::iterator FindInBusOrder(Devices& devices, std::size_t number) {
  std::sort(devices.begin(), devices.end(),
            [](const auto& a, const auto& b) { return ComesBefore(a->info(), b->info()); });
  if (number >= devices.size()) return devices.end();
  return devices.begin() + static_cast<std::ptrdiff_t>(number);
}

Devices::iterator Find(Devices& devices, std::string_view wanted, const char* visible) {
  if (const auto number = ParseNumber<std::size_t>(wanted)) {
    if (visible == nullptr) return FindInBusOrder(devices, *number);
    const auto names = SplitAtCommas(visible);
    if (*number >= names.size()) return devices.end();
    return Find(devices, names[*number], nullptr);
  }
  if (wanted.empty()) return devices.end();
  return std::find_if(devices.begin(), devices.end(), [wanted](const auto& device) {
    return device->info().uuid.starts_with(wanted);
  });
}

}  // namespace

Result<ChosenGpu> ChooseGpu(device::DeviceList& list, const std::string& wanted,
                            const char* visible) {
  Devices& devices = list.devices;
  if (wanted.empty() && visible == nullptr && devices.size() != 1) {
    return Fail("which of {} GPUs? (set PERSEUS_GPU to its UUID, or to its number among them)",
                devices.size());
  }
  if (wanted.empty() && visible != nullptr && SplitAtCommas(visible).size() != 1) {
    return Fail("which of the visible GPUs {}? (set PERSEUS_GPU to its number among them)",
                Excerpt(visible));
  }
  const auto found = Find(devices, wanted.empty() ? "0" : wanted, visible);
  if (found == devices.end()) {
    return Fail("no GPU {} here{}: there are {} (set PERSEUS_GPU to a UUID of perseus gpu list)",
                Excerpt(wanted.empty() ? "0" : wanted),
                visible != nullptr ? " among the visible ones" : "", devices.size());
  }
  ChosenGpu chosen;
  chosen.uuid = (*found)->info().uuid;
  chosen.device = std::move(*found);
  chosen.clock = list.clock;
  devices.erase(found);
  return chosen;
}

}  // namespace perseus::client
