#include "perseus/planning/profile/layer_profile.h"

#include <algorithm>
#include <utility>

namespace perseus::profile {
namespace {

Result<void> CheckHasClocksOf(const Profile& layers, const ProfileEntry& entry,
                              const ProfileEntry& other) {
  for (const Option& option : other.options) {
    const auto same =
        std::ranges::find(entry.options, option.frequency_mhz, &Option::frequency_mhz);
    if (same != entry.options.end()) continue;
    return Fail(InFile(layers.name()),
                "layer {} lacks {} at {} MHz, which layer {} has (measure it, or remove that clock "
                "from the {} of every layer)",
                entry.pp_rank, Name(entry.kind), option.frequency_mhz, other.pp_rank,
                Name(entry.kind));
  }
  return {};
}

// Checks that every layer has the same instructions as layer 0, and the same clocks for each.
Result<void> CheckAlike(const Profile& layers) {
  const auto lacks = [&](int layer, InstructionKind kind, int other) {
    return Fail(InFile(layers.name()),
                "layer {} lacks {}, which layer {} has (measure it for every layer)", layer,
                Name(kind), other);
  };
  for (const ProfileEntry& entry : layers.entries()) {
    const ProfileEntry* first = layers.Find(0, 0, entry.kind);
    if (first == nullptr) return lacks(0, entry.kind, entry.pp_rank);
    if (auto has = CheckHasClocksOf(layers, entry, *first); !has) return has;
    if (auto has = CheckHasClocksOf(layers, *first, entry); !has) return has;
  }
  for (const ProfileEntry& first : layers.entries()) {
    if (first.pp_rank != 0) break;
    for (int layer = 1; layer < LayerCount(layers); ++layer) {
      if (layers.Find(layer, 0, first.kind) == nullptr) return lacks(layer, first.kind, 0);
    }
  }
  return {};
}

}  // namespace

Result<Profile> ParseLayers(std::string_view text, std::string_view name) {
  auto layers = ParseProfile(text, name, {.rows = ProfileRows::kLayers});
  if (!layers) return layers;
  if (LayerCount(*layers) > kMostLayers) {
    return Fail(InFile(name), "{} layers are too many (at most {}: measure several as one)",
                LayerCount(*layers), kMostLayers);
  }
  PERSEUS_RETURN_IF_ERROR(CheckAlike(*layers));
  return layers;
}

Result<std::vector<Nanoseconds>> LayerTimes(const Profile& layers,
                                            std::span<const InstructionKind> kinds) {
  std::vector<Nanoseconds> times;
  for (int layer = 0; layer < LayerCount(layers); ++layer) {
    Nanoseconds time = 0;
    for (const InstructionKind kind : kinds) {
      const ProfileEntry* entry = layers.Find(layer, 0, kind);
      if (entry == nullptr) {
        return Fail(InFile(layers.name()),
                    "layer {} has no {} (measure it, or choose a schedule without {})", layer,
                    Name(kind), Name(kind));
      }
      time += entry->options.front().time;
    }
    times.push_back(time);
  }
  return times;
}

Profile StageProfile(const Profile& layers, std::span<const int> boundaries) {
  std::vector<ProfileEntry> entries;
  for (std::size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    for (const ProfileEntry& first : layers.entries()) {
      if (first.pp_rank != 0) break;
      ProfileEntry entry{static_cast<int>(stage), 0, first.kind, first.options};
      for (Option& sum : entry.options) sum = {sum.frequency_mhz, {}, 0, 0, 1};
      for (int layer = boundaries[stage]; layer < boundaries[stage + 1]; ++layer) {
        // ParseLayers has checked that all layers have the same clocks in the same order.
        const std::vector<Option>& options = layers.Find(layer, 0, first.kind)->options;
        for (std::size_t i = 0; i < options.size(); ++i) {
          entry.options[i].time += options[i].time;
          entry.options[i].energy_j += options[i].energy_j;
        }
      }
      entries.push_back(std::move(entry));
    }
  }
  return {"stages of " + layers.name(), {}, std::move(entries)};
}

}  // namespace perseus::profile
