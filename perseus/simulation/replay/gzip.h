// gzip (RFC 1952) to text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::replay {

bool IsGzip(std::string_view bytes);

// Returns the decompressed content of all members of `bytes`, one after another. Fails (kInput) if
// the bytes end early, are damaged, or contain more than `most_bytes`. The caller puts the name of
// the file before the message.
Result<std::string> Gunzip(std::string_view bytes, std::size_t most_bytes);

}  // namespace perseus::replay
