#include "perseus/planning/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <numeric>
#include <tuple>
#include <utility>

namespace perseus::profile {
namespace {

std::tuple<int, int, InstructionKind> Key(const ProfileEntry& entry) {
  return {entry.pp_rank, entry.chunk, entry.kind};
}

bool Precedes(const Option& a, const Option& b) {
  if (a.frequency_mhz != b.frequency_mhz) return a.frequency_mhz > b.frequency_mhz;
  return a.other_knobs < b.other_knobs;
}

// Puts a field with a comma, a quote or a line end in quotes (RFC 4180).
std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

// Writes seconds with as many decimals as the nanoseconds need: 50161667 ns is 0.050161667.
void AppendSeconds(std::string& text, Nanoseconds time) {
  text += fmt::format("{}", time / kSecond);
  Nanoseconds fraction = time % kSecond;
  if (fraction == 0) return;
  int digits = 9;
  while (fraction % 10 == 0) {
    fraction /= 10;
    --digits;
  }
  text += fmt::format(".{:0{}}", fraction, digits);
}

bool HasConfidence(const Profile& profile) {
  return std::ranges::any_of(profile.entries(), [](const ProfileEntry& entry) {
    return std::ranges::any_of(entry.options, [](const Option& option) {
      return option.time_ci_s > 0 || option.energy_ci_j > 0;
    });
  });
}

}  // namespace

std::string KnobText(const KnobLabels& labels, std::size_t knob, double value) {
  if (knob >= labels.size() || labels[knob].empty()) return fmt::format("{}", value);
  return labels[knob].at(static_cast<std::size_t>(value));
}

Profile::Profile(std::string name, std::vector<std::string> other_knob_names,
                 std::vector<ProfileEntry> entries)
    : name_(std::move(name)),
      other_knob_names_(std::move(other_knob_names)),
      knob_labels_(other_knob_names_.size()),
      entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const ProfileEntry& a, const ProfileEntry& b) { return Key(a) < Key(b); });
  for (ProfileEntry& entry : entries_) {
    std::stable_sort(entry.options.begin(), entry.options.end(), Precedes);
  }
}

std::optional<double> Profile::mean_blocking_power_w() const {
  if (blocking_powers_w_.empty()) return std::nullopt;
  const double sum = std::accumulate(blocking_powers_w_.begin(), blocking_powers_w_.end(), 0.0);
  return sum / static_cast<double>(blocking_powers_w_.size());
}

int Profile::pp_ranks() const { return entries_.empty() ? 0 : entries_.back().pp_rank + 1; }

int Profile::chunks() const {
  int chunks = 0;
  for (const ProfileEntry& entry : entries_) chunks = std::max(chunks, entry.chunk + 1);
  return chunks;
}

const ProfileEntry* Profile::Find(int pp_rank, int chunk, InstructionKind kind) const {
  const auto wanted = std::tuple(pp_rank, chunk, kind);
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), wanted,
                       [](const ProfileEntry& entry, const auto& key) { return Key(entry) < key; });
  return found != entries_.end() && Key(*found) == wanted ? &*found : nullptr;
}

std::string FormatProfile(const Profile& profile) {
  const bool has_chunks = profile.chunks() > 1;
  std::string text =
      has_chunks ? "pp_rank,chunk,instruction,frequency" : "stage,instruction,frequency";
  for (const std::string& knob : profile.other_knob_names()) {
    text += fmt::format(",{}", CsvField(knob));
  }
  const bool has_confidence = HasConfidence(profile);
  text += has_confidence ? ",time,energy,samples,time_ci,energy_ci\n" : ",time,energy\n";
  for (const ProfileEntry& entry : profile.entries()) {
    for (const Option& option : entry.options) {
      text += fmt::format("{},", entry.pp_rank);
      if (has_chunks) text += fmt::format("{},", entry.chunk);
      text += fmt::format("{},{},", Name(entry.kind), option.frequency_mhz);
      for (std::size_t i = 0; i < option.other_knobs.size(); ++i) {
        text += CsvField(KnobText(profile.knob_labels(), i, option.other_knobs[i])) + ",";
      }
      AppendSeconds(text, option.time);
      text += fmt::format(",{}", option.energy_j);
      if (has_confidence) {
        // A field without a measured value stays empty.
        text += fmt::format(",{},", option.samples > 0 ? fmt::to_string(option.samples) : "");
        if (option.time_ci_s > 0) text += fmt::format("{}", option.time_ci_s);
        text += ',';
        if (option.energy_ci_j > 0) text += fmt::format("{}", option.energy_ci_j);
      }
      text += '\n';
    }
  }
  return text;
}

std::string FormatProfile(const Profile& profile, const TimeNoise& noise) {
  const std::string rows = FormatProfile(profile);
  const std::string values = fmt::format(",{:.4g},{:.4g}", noise.independent, noise.common);
  std::string text;
  text.reserve(2 * rows.size());
  // No field has a line end: the names of knobs are printable.
  bool is_header = true;
  for (const char c : rows) {
    if (c == '\n') text += std::exchange(is_header, false) ? ",noise,common_noise" : values;
    text += c;
  }
  return text;
}

}  // namespace perseus::profile
