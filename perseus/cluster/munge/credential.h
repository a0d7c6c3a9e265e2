// Credentials of MUNGE, which Slurm uses. munged on one host signs a text and the user who
// requested this. munged on another host with the same key returns both. Needs libmunge.so.2 and
// munged at run time, but not at build time.
//
// A credential says which user encoded it, but not on which host. It is valid for 5 minutes, and
// munged decodes it only once on each host.
//
// Thread safe. Both functions wait for munged, for several seconds if it hangs.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::munge {

// `socket` is the socket of munged. Empty: the default of the system.
Result<std::string> Encode(const std::string& text, const std::string& socket = "");

struct Decoded {
  std::string text;
  uid_t user = 0;
};
// Fails (kInput) if munged refuses the credential: forged, expired or decoded before. Fails
// (kSystem) if munged or libmunge is unavailable.
Result<Decoded> Decode(const std::string& credential, const std::string& socket = "");

// Returns the text that a node signs to join a server: "perseus join SERVER NODE".
std::string JoinText(std::string_view server, std::string_view node);

}  // namespace perseus::munge
