// Credentials of MUNGE, which Slurm uses: munged on one host signs a text with the user that asked
// for it, and munged on another host with the same key says who that was. Needs libmunge.so.2 and
// munged at run time, and neither to build.
//
// A credential says which user encoded it, and not on which host. It lasts 5 minutes, and munged
// decodes it once on each host.
//
// Thread safe. Both functions wait for munged, for some seconds if it hangs.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::munge {

// `socket`: of munged. Empty: that of the system.
Result<std::string> Encode(const std::string& text, const std::string& socket = "");

struct Decoded {
  std::string text;
  uid_t user = 0;
};
// Fails with kInput if munged refuses the credential: forged, expired or decoded before. Fails with
// kSystem if munged or libmunge is not there.
Result<Decoded> Decode(const std::string& credential, const std::string& socket = "");

// What a node signs to join a server: "perseus join SERVER NODE".
std::string JoinText(std::string_view server, std::string_view node);

}  // namespace perseus::munge
