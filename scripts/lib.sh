# shellcheck shell=bash disable=SC2034  # The scripts that source this file read the package lists.
# Shared code of the scripts in this directory: package lists, installation and builds. Each script
# sources this file first. The file changes the directory to the repository's root.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The packages of Debian 12, by the part that needs them. This is the only list of packages.
packages_build=(cmake ninja-build g++ ccache mold libexpected-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libtomlplusplus-dev duktape-dev zlib1g-dev libboost1.81-dev libssl-dev
  libeigen3-dev libspdlog-dev prometheus-cpp-dev libsqlite3-dev libpq-dev)
packages_python=(python3 python3-dev python3-numpy)
packages_wheel=(python3-venv python3-pip python3-setuptools python3-wheel)
packages_web=(nodejs npm)
packages_browser=(chromium)
packages_test=(git libgtest-dev libgmock-dev coinor-libclp-dev coinor-libcbc-dev libbenchmark-dev
  python3 python3-yaml python3-jsonschema pkg-config postgresql sqlite3 clang-format-14 openssl munge
  prometheus)
packages_all=(systemd)
packages_sanitize=(clang-14 libclang-rt-14-dev)
packages_package=(help2man lowdown dpkg-dev file)
packages_docs=(doxygen python3 python3-venv)
packages_lint=(clang-14 clang-tidy-14 clang-tools-14 python3 shellcheck)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "$@"
  exit 1
}

is_installed() {
  # dpkg-query prints one state for each architecture. The first state counts.
  [[ $(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null) == installed* ]]
}

# install_packages PACKAGE... installs the missing packages. If no package is missing, it needs
# neither the network nor root. After a failure, it prints one line: which packages it cannot
# install, and why.
install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this system has no apt; continuing with the installed packages (needed: $*)"
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
  # The package lists may be missing (on a new machine) or outdated. After a failure, update the
  # lists and try again.
  if ! "${install[@]}" >"$log" 2>&1; then
    "${as_root[@]}" apt-get -q update >"$log" 2>&1 || true
    if ! "${install[@]}" >>"$log" 2>&1; then
      say "apt cannot install ${missing[*]}: $(grep '^E:' "$log" | head -1) (is there a network?" \
        "all of apt's output is in $log)"
      return 1
    fi
  fi
}

# leave_out WHAT... prints what is left out and why. If PERSEUS_REQUIRE_PAGE is set, it fails. CI
# sets this variable, because nothing may be left out there.
leave_out() {
  [[ -z ${PERSEUS_REQUIRE_PAGE:-} ]] || die "$@"
  say "$@"
}

# install_web installs the packages that build the report page. Everything else builds without these
# packages, so a failure is not an error.
install_web() {
  # If node is not from Debian, it has its own npm. Debian's npm would conflict with that npm.
  if command -v node >/dev/null && command -v npm >/dev/null; then
    local version
    version=$(node --version)
    version=${version#v}
    [[ ${version%%.*} -lt 18 ]] || return 0
    leave_out "node $version is too old (version 18 is needed): reports and figures are left out"
  elif ! install_packages "${packages_web[@]}"; then
    leave_out "without ${packages_web[*]}, reports and figures are left out"
  fi
}

# install_browser installs the browser that tests of the report page need. Other tests run without a
# browser.
install_browser() {
  command -v chromium >/dev/null || install_packages "${packages_browser[@]}" ||
    leave_out "without ${packages_browser[*]}, the tests of the report page in a browser are skipped"
}

# install_python installs the packages that the Python package and its tests need. Everything else
# builds without these packages.
install_python() {
  install_packages "${packages_python[@]}" ||
    leave_out "without ${packages_python[*]}, the Python package is left out"
  install_packages "${packages_wheel[@]}" ||
    leave_out "without ${packages_wheel[*]}, the wheel is not tested"
  install_frameworks
}

# install_venv VENV PINS [BASE] makes a virtual environment with the versions in the file PINS. It
# uses Debian's Python, because the extension modules are built for this Python. The environment does
# not use the system's packages, because the versions must be exact. It uses those of the environment
# BASE.
install_venv() {
  local venv=$1 pins=$2 base=${3:-}
  ! cmp -s "$pins" "$venv/installed.txt" || return 0
  say "installing $pins into $venv"
  mkdir -p build
  if ! { /usr/bin/python3 -m venv --clear "$venv" &&
    { [[ -z $base ]] || find "$(realpath "$base")"/lib/*/ -maxdepth 1 -name site-packages >"$(echo "$venv"/lib/*/site-packages)/base.pth"; } &&
    "$venv/bin/pip" install --progress-bar off -r <(grep -v "# no-deps" "$pins") &&
    { ! grep -q "# no-deps" "$pins" ||
      "$venv/bin/pip" install --progress-bar off --no-deps -r <(grep "# no-deps" "$pins"); }; } >"$venv.log" 2>&1; then
    say "pip cannot install $pins (is there a network? all of its output is in $venv.log)"
    return 1
  fi
  cp "$pins" "$venv/installed.txt"
}

# install_frameworks makes the virtual environment build/venv with the training frameworks.
install_frameworks() {
  install_venv build/venv scripts/frameworks.txt || leave_out "the adapters of the frameworks are not tested"
}

# install_trackers makes the virtual environment build/trackers, over build/venv.
install_trackers() {
  install_venv build/trackers scripts/trackers.txt build/venv || leave_out "the callbacks of trackers are not tested"
}

# install_docs makes the virtual environment build/docs-venv with the tools that make the
# documentation site.
install_docs() { install_venv build/docs-venv scripts/site/requirements.txt; }

# configure PRESET [CMAKE ARGUMENT...] prints output only if it fails.
configure() {
  mkdir -p build
  local log="build/configure-$1.log"
  if ! cmake --preset "$@" ${PERSEUS_REQUIRE_PAGE:+-DPERSEUS_REQUIRE_PAGE=ON -DPERSEUS_REQUIRE_PYTHON=ON} \
    >"$log" 2>&1; then
    cat "$log" >&2
    die "configuring build/$1 failed, see above (remove build/$1 if another checkout made it)"
  fi
}

# build PRESET [NINJA ARGUMENT...] builds with all cores. On a terminal, it shows one line of
# progress. Otherwise, it prints only errors.
build() {
  local directory="build/$1" quiet=()
  shift
  [[ -t 1 ]] || quiet=(--quiet)
  ninja -C "$directory" -j "$(nproc)" "${quiet[@]}" "$@"
}

# make_bare_debian ROOT [SUITE] makes a bare Debian in the directory ROOT: Debian 12, or another
# suite, such as trixie, from the same archive. The system has a shell and
# apt, with the mirror, keys and proxies of this machine's apt. It first deletes the directory.
# Needs root.
make_bare_debian() {
  local root=$1 suite=${2:-bookworm} mirror item script=()
  [[ $(id -u) -eq 0 ]] || die "needs root, for chroot (sudo scripts/$(basename "$0"))"
  install_packages debootstrap || exit 1
  # shellcheck disable=SC2016  # apt expands $(RELEASE) and $(REPO_URI).
  mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' |
    awk '$1 == "bookworm" && !found { print $2; found = 1 }')
  [[ -n $mirror ]] || die "this machine's apt sources name no archive of bookworm (Debian 12)"

  # Debian 12 does not know the suites after it, but they are made as sid is.
  [[ -e /usr/share/debootstrap/scripts/$suite ]] || script=(sid)

  say "making a bare Debian ($suite) in $root"
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase "$suite" "$root" "$mirror" "${script[@]}" >"$root.log" 2>&1 ||
    die "debootstrap failed: $(tail -1 "$root.log") (all of its output is in $root.log)"

  # Copies only the settings of this machine that apt needs to reach the same archive.
  apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/99host"
  for item in /etc/resolv.conf /etc/hosts /etc/apt/auth.conf /etc/apt/auth.conf.d \
    /etc/apt/trusted.gpg.d; do
    [[ ! -e $item ]] || cp -rL "$item" "$root$(dirname "$item")"
  done
}
