// Checks that no JSON makes ParseSavedState crash or accept a state that it would not write, and
// that FormatSavedState loses nothing. If a state parses, the agent can restore GPUs from it, after
// any boot.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/runtime/agent/saved_state_file.h"

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto state = perseus::agent::ParseSavedState(text, "fuzz");
  if (!state) {
    RequireOneLine(state.error());
    return 0;
  }
  const std::string written = perseus::agent::FormatSavedState(*state);
  const auto again = perseus::agent::ParseSavedState(written, "again");
  Require(again.has_value() && *again == *state);
  Require(perseus::agent::FormatSavedState(*again) == written);

  for (const std::string_view boot :
       {std::string_view(state->boot_id), std::string_view("other")}) {
    const auto restores = perseus::agent::RestoresAfterStart(*state, boot, {});
    perseus::agent::SavedState next = *state;
    next.BeginBoot(boot, restores);
    Require(perseus::agent::RestoresAfterStart(next, boot, {}) == restores);
    for (const perseus::agent::Restore& restore : restores)
      next.Restored(restore.uuid, restore.control);
    for (const auto& [uuid, gpu] : state->gpus) Require(next.GiveBack(uuid));
    Require(next.gpus.empty());
  }
  return 0;
}
