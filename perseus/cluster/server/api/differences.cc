#include "perseus/cluster/server/api/differences.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "perseus/base/excerpt.h"

namespace perseus::server {
namespace {

using nlohmann::json;

constexpr int kMaxDifferences = 4;

// `flat` is a flattened document, such as {"/schedule/stages": 4}.
std::string TextAt(const json& flat, const std::string& pointer) {
  const auto found = flat.find(pointer);
  if (found == flat.end()) return "none";
  return found->is_string() ? Excerpt(found->get_ref<const std::string&>()) : found->dump();
}

std::string NameOf(const std::string& pointer) {
  std::string name = pointer.substr(std::min<std::size_t>(1, pointer.size()));
  std::ranges::replace(name, '/', '.');
  return name;
}

}  // namespace

std::string Differences(const json& there, const json& here) {
  const json old_members = there.flatten();
  const json new_members = here.flatten();
  std::set<std::string> pointers;
  for (const json* members : {&old_members, &new_members}) {
    for (const auto& [pointer, value] : members->items()) pointers.insert(pointer);
  }
  std::string text;
  int differences = 0;
  for (const std::string& pointer : pointers) {
    const std::string was = TextAt(old_members, pointer);
    const std::string is = TextAt(new_members, pointer);
    // The excerpts of two long texts may be equal, so the whole values are compared, too.
    if (was == is && old_members.value(pointer, json()) == new_members.value(pointer, json())) {
      continue;
    }
    if (differences == kMaxDifferences) return text + "; …";
    text += fmt::format("{}{} {}, here {}", differences == 0 ? "" : "; ", NameOf(pointer), was, is);
    ++differences;
  }
  return text;
}

}  // namespace perseus::server
