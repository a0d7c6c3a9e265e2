#include "perseus/runtime/device/rocm_api.h"

#include <cstring>
#include <string>
#include <utility>

#include "perseus/base/limits.h"
#include "perseus/base/units.h"

namespace perseus::device::rocm {
namespace {

constexpr std::uint64_t kMostHertz = kHighestFrequencyMhz * kHertzPerMegahertz;
constexpr std::uint32_t kMostFrequencies = 33;
constexpr std::uint32_t kNoCurrent = ~0U;

template <typename T>
T At(const StructBuffer& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::optional<Frequencies> ParseFrequenciesAt(const StructBuffer& bytes, std::size_t header,
                                              std::size_t list) {
  const auto count = At<std::uint32_t>(bytes, header);
  const auto current = At<std::uint32_t>(bytes, header + 4);
  if (count == 0 || count > kMostFrequencies) return std::nullopt;
  if (current >= count && current != kNoCurrent) return std::nullopt;
  Frequencies frequencies;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto hertz = At<std::uint64_t>(bytes, list + i * sizeof(std::uint64_t));
    if (hertz > kMostHertz) return std::nullopt;
    frequencies.mhz.push_back(static_cast<int>(hertz / kHertzPerMegahertz));
  }
  if (current != kNoCurrent) frequencies.current = current;
  return frequencies;
}

std::optional<ClockRange> ParseRange(const StructBuffer& bytes, std::size_t offset) {
  const auto lower = At<std::uint64_t>(bytes, offset);
  const auto upper = At<std::uint64_t>(bytes, offset + 8);
  if (lower > upper || upper == 0 || upper > kMostHertz) return std::nullopt;
  return ClockRange{static_cast<int>(lower / kHertzPerMegahertz),
                    static_cast<int>(upper / kHertzPerMegahertz)};
}

Result<LibrarySymbols> Open(std::string_view file) {
  if (!file.empty()) return LibrarySymbols::Open(std::string(file));
  // Only the development package has the name without a version. The version numbers followed the
  // releases of ROCm, and later began at 1 again.
  Result<LibrarySymbols> opened;
  for (const std::string directory : {"", "/opt/rocm/lib/"}) {
    for (const char* version : {"", ".1", ".7", ".6", ".5"}) {
      opened = LibrarySymbols::Open(directory + "librocm_smi64.so" + version);
      if (opened) return opened;
    }
  }
  return opened;
}

}  // namespace

Result<Functions> Load(std::string_view file) {
  Result<LibrarySymbols> opened = Open(file);
  if (!opened) {
    return FailAs(ErrorKind::kSystem,
                  "cannot load ROCm SMI ({}): install rocm-smi-lib, or librocm-smi64-1 on Debian",
                  opened.error().Message());
  }
  Functions functions{*std::move(opened)};
  if (functions.library.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} is not ROCm SMI (name another file)",
                  file.empty() ? "librocm_smi64.so" : file);
  }
  return functions;
}

std::optional<Frequencies> ParseFrequencies(const StructBuffer& bytes) {
  std::optional<Frequencies> frequencies = ParseFrequenciesAt(bytes, 0, 8);
  return frequencies ? frequencies : ParseFrequenciesAt(bytes, 4, 16);
}

std::optional<OverdriveRanges> ParseOverdrive(const StructBuffer& bytes) {
  // The current ranges of SM and memory come first. Their limits follow. Each range has 16 bytes.
  const std::optional<ClockRange> sm = ParseRange(bytes, 0);
  if (!sm) return std::nullopt;
  return OverdriveRanges{.sm = *sm, .sm_limits = ParseRange(bytes, 32)};
}

}  // namespace perseus::device::rocm
