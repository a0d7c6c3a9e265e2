// Names that nobody can guess, from the kernel's source of randomness.
#pragma once

#include <cstddef>
#include <string>

namespace perseus::server {

// Two digits for each byte.
std::string RandomHex(std::size_t bytes);

}  // namespace perseus::server
