// gzip (RFC 1952) to text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::replay {

bool IsGzip(std::string_view bytes);

// What `bytes` hold, of all members one after another. Fails (kInput) where they end early, are
// damaged, or hold more than `most_bytes`; the message follows the file's name.
Result<std::string> Gunzip(std::string_view bytes, std::size_t most_bytes);

}  // namespace perseus::replay
