#include "perseus/planning/profile/stage_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

std::string_view Name(MemorySource source) {
  return source == MemorySource::kMeasured ? "measured" : "modeled";
}

const StageMemory::Part* StageMemory::Find(int pp_rank, int chunk) const {
  const auto found = std::ranges::find_if(
      parts, [&](const Part& part) { return part.pp_rank == pp_rank && part.chunk == chunk; });
  return found == parts.end() ? nullptr : &*found;
}

std::string AddMemory(const Profile& profile, const std::string& rows, const StageMemory& memory) {
  const auto format = [](const std::optional<std::int64_t>& bytes) {
    return bytes ? fmt::to_string(*bytes) : std::string();
  };
  std::string text;
  text.reserve(2 * rows.size());
  std::size_t begin = 0;
  const auto add_row = [&](std::string_view values) {
    const std::size_t end = rows.find('\n', begin);
    text.append(rows, begin, end - begin).append(values) += '\n';
    begin = end + 1;
  };
  // No field has a line end: the names of knobs are printable.
  add_row(",activation_bytes,model_bytes,memory_source");
  for (const ProfileEntry& entry : profile.entries()) {
    const StageMemory::Part* part = memory.Find(entry.pp_rank, entry.chunk);
    const std::string values = part == nullptr
                                   ? ",,,"
                                   : fmt::format(",{},{},{}", format(part->activation_bytes),
                                                 format(part->model_bytes), Name(memory.source));
    for (std::size_t i = 0; i < entry.options.size(); ++i) add_row(values);
  }
  return text;
}

}  // namespace perseus::profile
