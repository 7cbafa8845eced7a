#!/usr/bin/env bash
# dist.sh FOLDER: what a release is, of the last commit: caravan-VERSION.tar.gz with the sources, caravan-VERSION.cdx.json, the
# software bill of materials (CycloneDX 1.5), and SHA256SUMS. Two runs give the same bytes: times are SOURCE_DATE_EPOCH, or that of
# the commit, and nothing of the machine is in them but the versions of libraries that pkg-config names.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
commit=$(git rev-parse HEAD 2>/dev/null) || { echo "make dist packs a git checkout, which this folder is not" >&2; exit 1; }
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "make dist packs the last commit: changes since then are left out" >&2
version=$(sed -n 's/^project(caravan VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
name=caravan-$version
mkdir -p "$folder"

git archive --format=tar --prefix="$name/" --mtime="@$epoch" "$commit" 2>/dev/null >"$folder/$name.tar" ||
    git archive --format=tar --prefix="$name/" "$commit" >"$folder/$name.tar" # git before 2.43 takes the commit's time
gzip -n -9 -f "$folder/$name.tar"
digest=$(sha256sum "$folder/$name.tar.gz" | cut -d ' ' -f 1)

# Libraries: name in pkg-config, licence, whether there is a build without it.
components=""
while read -r module license scope; do
    found=$(pkg-config --modversion "$module" 2>/dev/null) || found=""
    components+="${components:+,}
    {\"type\": \"library\", \"bom-ref\": \"$module\", \"name\": \"$module\",${found:+ \"version\": \"$found\",} \"scope\": \"$scope\",
     \"licenses\": [{\"license\": {\"id\": \"$license\"}}]}"
    refs+="${refs:+, }\"$module\""
done <<'LIBRARIES'
jansson MIT required
libpcre2-8 BSD-3-Clause required
libutf8proc MIT required
nettle LGPL-3.0-or-later required
hwloc BSD-3-Clause optional
libedit BSD-3-Clause optional
libmicrohttpd LGPL-2.1-or-later optional
ompi-c BSD-3-Clause optional
LIBRARIES
id=$(sha256sum <<<"$digest$components" | sed 's/^\(.\{8\}\)\(.\{4\}\).\(.\{3\}\).\(.\{3\}\)\(.\{12\}\).*/\1-\2-5\3-8\4-\5/')
cat >"$folder/$name.cdx.json" <<SBOM
{"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": "urn:uuid:$id", "version": 1,
  "metadata": {
    "timestamp": "$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)",
    "component": {
      "type": "application", "bom-ref": "caravan", "name": "caravan", "version": "$version",
      "licenses": [{"license": {"id": "Apache-2.0"}}],
      "hashes": [{"alg": "SHA-256", "content": "$digest"}],
      "properties": [{"name": "git:commit", "value": "$commit"}]}},
  "components": [$components
  ],
  "dependencies": [{"ref": "caravan", "dependsOn": [$refs]}]
}
SBOM
(cd "$folder" && sha256sum "$name.tar.gz" "$name.cdx.json" >SHA256SUMS && ls "$name.tar.gz" "$name.cdx.json" SHA256SUMS)
