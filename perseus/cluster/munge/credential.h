// Credentials of MUNGE, which Slurm uses. On one host, the daemon munged signs a text together with
// the user who requested the signature. On another host with the same key, munged returns the text
// and the user. Needs libmunge.so.2 and munged at run time, but not at build time.
//
// A credential says which user encoded it, but not on which host. A credential is valid for 5
// minutes, and munged decodes it only once on each host.
//
// Thread safe. Encode and Decode wait for munged. If munged hangs, they wait for several seconds.
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
// Fails (kInput) if munged refuses the credential because it was forged, has expired or was already
// decoded. Fails (kSystem) if munged or libmunge is unavailable.
Result<Decoded> Decode(const std::string& credential, const std::string& socket = "");

// Returns the text that a node signs to join a server: "perseus join SERVER NODE".
std::string JoinText(std::string_view server, std::string_view node);

}  // namespace perseus::munge
