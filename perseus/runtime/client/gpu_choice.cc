#include "perseus/runtime/client/gpu_choice.h"

#include <algorithm>
#include <numeric>
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

using Names = std::vector<device::DeviceName>;

// Virtual GPUs have no bus. Shorter names come first, so "box-2" comes before "box-10".
bool ComesBefore(const device::DeviceName& a, const device::DeviceName& b) {
  if (a.pci_bus_id != b.pci_bus_id) return a.pci_bus_id < b.pci_bus_id;
  if (a.uuid.size() != b.uuid.size()) return a.uuid.size() < b.uuid.size();
  return a.uuid < b.uuid;
}

// Returns the place of a GPU, or nullopt if it is not among them.
std::optional<std::size_t> FindInBusOrder(const Names& names, std::size_t number) {
  if (number >= names.size()) return std::nullopt;
  std::vector<std::size_t> places(names.size());
  std::iota(places.begin(), places.end(), 0);
  std::sort(places.begin(), places.end(),
            [&](std::size_t a, std::size_t b) { return ComesBefore(names[a], names[b]); });
  return places[number];
}

// The name or the number that CUDA_VISIBLE_DEVICES has at the place `wanted`, or `wanted` itself.
// Returns nullopt if it has no such place.
std::optional<std::string_view> NameOf(std::string_view wanted, const char* visible) {
  const auto number = ParseNumber<std::size_t>(wanted);
  if (!number || visible == nullptr) return wanted;
  const auto names = SplitAtCommas(visible);
  if (*number >= names.size()) return std::nullopt;
  return names[*number];
}

std::optional<std::size_t> Find(const Names& names, std::string_view wanted, const char* visible) {
  const auto name = NameOf(wanted, visible);
  if (!name || name->empty()) return std::nullopt;
  if (const auto number = ParseNumber<std::size_t>(*name)) return FindInBusOrder(names, *number);
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const auto& one) { return one.uuid.starts_with(*name); });
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

Result<std::size_t> Choose(const Names& names, const std::string& wanted, const char* visible) {
  if (wanted.empty() && visible == nullptr && names.size() != 1) {
    return Fail("which of {} GPUs? (set PERSEUS_GPU to its UUID, or to its number among them)",
                names.size());
  }
  if (wanted.empty() && visible != nullptr && SplitAtCommas(visible).size() != 1) {
    return Fail("which of the visible GPUs {}? (set PERSEUS_GPU to its number among them)",
                Excerpt(visible));
  }
  const auto found = Find(names, wanted.empty() ? "0" : wanted, visible);
  if (found) return *found;
  return Fail("no GPU {} here{}: there are {} (set PERSEUS_GPU to a UUID of perseus gpu list)",
              Excerpt(wanted.empty() ? "0" : wanted),
              visible != nullptr ? " among the visible ones" : "", names.size());
}

}  // namespace

Result<ChosenGpu> OpenGpu(std::string_view devices, device::OpenVirtual open_virtual,
                          const std::string& wanted, const char* visible) {
  device::WantedDevice one;
  // An empty setting means the only GPU, if there is only one.
  const bool is_named =
      !wanted.empty() || (visible != nullptr && SplitAtCommas(visible).size() == 1);
  if (is_named) one.uuid = NameOf(wanted.empty() ? "0" : wanted, visible).value_or("");
  one.choose = [&](const Names& names) { return Choose(names, wanted, visible); };
  PERSEUS_ASSIGN_OR_RETURN(device::DeviceList list, device::OpenDevice(devices, open_virtual, one));
  ChosenGpu chosen;
  chosen.uuid = list.devices.front()->info().uuid;
  chosen.device = std::move(list.devices.front());
  chosen.clock = list.clock;
  return chosen;
}

}  // namespace perseus::client
