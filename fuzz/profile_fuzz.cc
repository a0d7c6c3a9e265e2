// Can any bytes make the reader of profiles crash, or lose something on the way out and in again?
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "perseus/profile/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const perseus::Result<perseus::Profile> profile = perseus::ParseProfile(text, "fuzz.csv");
  if (!profile) {
    // An error is one line.
    if (profile.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string written = perseus::FormatProfile(*profile);
  const perseus::Result<perseus::Profile> again = perseus::ParseProfile(written, "again.csv");
  if (!again || perseus::FormatProfile(*again) != written) std::abort();
  return 0;
}
