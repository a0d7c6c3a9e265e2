# shellcheck shell=bash disable=SC2034  # Lists of packages are read by those that source this.
# Shared by the scripts beside it, which source it first: the packages, their installation, and the
# builds. Leaves the caller in the repository's root.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What Debian 12 has to provide, by what needs it. Nowhere else are packages listed.
packages_build=(cmake ninja-build g++ ccache mold libexpected-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libtomlplusplus-dev duktape-dev zlib1g-dev libboost1.81-dev libssl-dev
  libeigen3-dev libspdlog-dev prometheus-cpp-dev libsqlite3-dev libpq-dev)
packages_python=(python3 python3-dev python3-numpy pybind11-dev)
packages_torch=(python3-torch libopenblas0-pthread)
packages_wheel=(python3-venv python3-pip python3-setuptools python3-wheel)
packages_web=(nodejs npm)
packages_browser=(chromium)
packages_test=(libgtest-dev libgmock-dev coinor-libclp-dev coinor-libcbc-dev libbenchmark-dev librsvg2-bin
  prometheus systemd python3 python3-yaml python3-jsonschema
  pkg-config postgresql clang-format-14 openssl)
packages_sanitize=(clang-14 libclang-rt-14-dev)
packages_lint=(clang-14 clang-tidy-14 clang-tools-14 python3 shellcheck)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "$@"
  exit 1
}

is_installed() {
  # One per architecture; the first state tells.
  [[ $(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null) == installed* ]]
}

# install_packages PACKAGE... installs those that are missing. With none missing it asks neither
# for the network nor for root. Fails with one line that says what cannot be had and why.
install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt on this system; going on with what is installed (needed: $*)"
    return 0
  fi
  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      say "missing: ${missing[*]} (as root, run: apt-get install ${missing[*]})"
      return 1
    fi
  fi
  say "installing with apt: ${missing[*]}"
  mkdir -p build
  local log=build/apt.log
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o Acquire::Retries=3 install --no-install-recommends "${missing[@]}")
  # The lists of packages may be absent (a fresh machine) or stale, so a failure is tried once more
  # with new ones.
  if ! "${install[@]}" >"$log" 2>&1; then
    "${as_root[@]}" apt-get -q update >"$log" 2>&1 || true
    if ! "${install[@]}" >>"$log" 2>&1; then
      say "apt cannot install ${missing[*]}: $(grep '^E:' "$log" | head -1) (is there a network?" \
        "all of apt's output is in $log)"
      return 1
    fi
  fi
}

# leave_out WHAT...: says what is left out and why. An error if PERSEUS_REQUIRE_PAGE is set, as in CI,
# where nothing may be.
leave_out() {
  [[ -z ${PERSEUS_REQUIRE_PAGE:-} ]] || die "$@"
  say "$@"
}

# install_web: what makes the report page. All else builds without it, so failing is no error.
install_web() {
  # Another node than Debian's has its own npm, and Debian's would be in its way.
  if command -v node >/dev/null && command -v npm >/dev/null; then
    local version
    version=$(node --version)
    version=${version#v}
    [[ ${version%%.*} -lt 18 ]] || return 0
    leave_out "node $version is too old, 18 is needed: reports and figures are left out"
  elif ! install_packages "${packages_web[@]}"; then
    leave_out "without ${packages_web[*]} reports and figures are left out"
  fi
}

# install_browser: what the tests of the report page look at it with; the others run without.
install_browser() {
  command -v chromium >/dev/null || install_packages "${packages_browser[@]}" ||
    leave_out "without ${packages_browser[*]} the tests of the report page in a browser are left out"
}

# install_python: what the Python package and its tests take. All else builds without it.
install_python() {
  install_packages "${packages_python[@]}" ||
    leave_out "without ${packages_python[*]} the Python package is left out"
  install_packages "${packages_wheel[@]}" ||
    leave_out "without ${packages_wheel[*]} its wheel is not tested"
  install_packages "${packages_torch[@]}" ||
    leave_out "without ${packages_torch[*]} the PyTorch example is not tested"
}

# configure PRESET [CMAKE ARGUMENT...]: quiet unless it fails.
configure() {
  mkdir -p build
  local log="build/configure-$1.log"
  if ! cmake --preset "$@" ${PERSEUS_REQUIRE_PAGE:+-DPERSEUS_REQUIRE_PAGE=ON -DPERSEUS_REQUIRE_PYTHON=ON} \
    >"$log" 2>&1; then
    cat "$log" >&2
    die "configuring build/$1 failed, see above (remove build/$1 if another checkout made it)"
  fi
}

# build PRESET [NINJA ARGUMENT...]: all cores; one line that updates itself on a terminal, else only
# what goes wrong.
build() {
  local directory="build/$1" quiet=()
  shift
  [[ -t 1 ]] || quiet=(--quiet)
  ninja -C "$directory" -j "$(nproc)" "${quiet[@]}" "$@"
}
