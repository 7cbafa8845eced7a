#!/usr/bin/env bash
# root.sh PACKAGE ARCHIVE: the root of packaging/Containerfile's image as a tar archive, by mmdebstrap, where no registry is at hand.
# PACKAGE is caravan_….deb, which `make package` makes on the same release of Debian (SUITE, bookworm). Then
#
#     podman import --change 'USER 10001' --change 'ENV CARAVAN_MODELS=/models' --change 'ENTRYPOINT ["caravan"]' root.tar caravan
#
# or, without containers: mkdir root && tar -C root -xf root.tar && chroot --userspec 10001 root caravan --help
set -euo pipefail
package=$(realpath "$1")
archive=$2
command -v mmdebstrap >/dev/null || { echo "root.sh: mmdebstrap is not installed: apt-get install mmdebstrap" >&2; exit 1; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$(dirname "$0")" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# What the package depends on, installed along with what the image has besides it.
needs=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/ //g')
mmdebstrap --quiet --variant=minbase --include="ca-certificates,curl,$needs" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --customize-hook="cp '$package' \"\$1/tmp/caravan.deb\" && chroot \"\$1\" dpkg -i /tmp/caravan.deb >/dev/null && rm \"\$1/tmp/caravan.deb\"" \
    --customize-hook='chroot "$1" useradd --uid 10001 --shell /usr/sbin/nologin --create-home --home-dir /var/lib/caravan caravan' \
    --customize-hook='chroot "$1" install -d -o caravan -g caravan /models' \
    "${SUITE:-bookworm}" "$archive"
echo "$archive"
