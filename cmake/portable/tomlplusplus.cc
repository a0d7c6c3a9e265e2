// Debian has toml++ as a shared library and as headers. This makes a static library of the headers.
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
