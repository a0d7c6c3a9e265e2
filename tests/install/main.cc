// What somebody else's program does with the installed libraries: reads a profile and handles an
// error.
#include <perseus/base/result.h>
#include <perseus/profile/profile.h>

#include <cstdio>
#include <string_view>

int main() {
  constexpr std::string_view kProfile =
      "stage,instruction,frequency,time,energy\n"
      "0,forward,1410,0.010,4.0\n"
      "0,forward,1200,0.011,3.5\n"
      "0,backward,1410,0.020,8.0\n"
      "0,backward,1200,0.022,7.0\n";
  const perseus::Result<perseus::Profile> profile = perseus::ParseProfile(kProfile, "profile.csv");
  if (!profile) {
    std::fprintf(stderr, "%s\n", profile.error().message.c_str());
    return 1;
  }
  const bool read = profile->stages() == 1 && profile->entries().size() == 2;
  const bool typo_found = !perseus::ParseProfile("stage,instructoin\n", "profile.csv");
  return read && typo_found ? 0 : 1;
}
