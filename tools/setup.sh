#!/usr/bin/env bash
# setup.sh: installs what build and tests need and this machine lacks, by apt-get. Says nothing and needs no network
# when nothing is missing. Optional packages are installed along with required ones that are missing, never for their
# own sake.
# setup.sh --check: only says, in one sentence, what the build needs and this machine lacks.
set -euo pipefail

# kind, package (Debian's and Ubuntu's name), how to see that it is there
packages='
required  build-essential    command -v cc
required  cmake              command -v cmake
required  ninja-build        command -v ninja
required  pkg-config         command -v pkg-config
required  libjansson-dev     pkg-config --exists jansson
required  libpcre2-dev       pkg-config --exists libpcre2-8
required  libutf8proc-dev    pkg-config --exists libutf8proc
required  nettle-dev         pkg-config --exists nettle
tests     libcmocka-dev      pkg-config --exists cmocka
optional  libedit-dev        pkg-config --exists libedit
optional  libopenmpi-dev     pkg-config --exists ompi-c
optional  openmpi-bin        command -v mpirun
optional  libhwloc-dev       pkg-config --exists hwloc
optional  libmicrohttpd-dev  pkg-config --exists libmicrohttpd
'

required=() optional=()
while read -r kind package probe; do
    [ -n "$kind" ] || continue
    $probe >/dev/null 2>&1 && continue
    case $kind-${1-} in
    optional-*) optional+=("$package") ;;
    tests---check) ;;
    *) required+=("$package") ;;
    esac
done <<<"$packages"
[ ${#required[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Caravan needs what Debian calls ${required[*]}; please install it with this system's package manager." >&2
    exit 1
fi
if [ "${1-}" = --check ]; then
    echo "Caravan's build needs ${required[*]}, which this machine lacks; \`make setup\` installs that by apt-get." >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
        echo "Caravan needs packages that only root can install; please have this run: apt-get install ${required[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing ${required[*]} ${optional[*]-}"
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
# The package lists of a fresh container are empty or old; they are fetched when the first try fails.
if ! "${install[@]}" "${required[@]}" "${optional[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q >/dev/null || true
    "${install[@]}" "${required[@]}" "${optional[@]}" >/dev/null || "${install[@]}" "${required[@]}" >/dev/null ||
        { echo "apt-get could not install ${required[*]}; the lines above say why." >&2; exit 1; }
fi
