#!/usr/bin/env bash
# Builds the gateway's image from contrib/Containerfile, with buildah and Debian's Python in place of the image that the
# file names: no container registry is needed. Runs as root. Images stay in $1, a folder of buildah's own.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "building an image here needs root"; exit 1; }

missing=()
command -v buildah >/dev/null || missing+=(buildah)
command -v debootstrap >/dev/null || missing+=(debootstrap)
[ ${#missing[@]} = 0 ] || { apt-get update -qq && apt-get install -qq -y "${missing[@]}" >/dev/null; }

folder=$1
mkdir -p "$folder"
# In a sandbox there is neither overlayfs nor a runtime for containers: files are copied, and commands run in a chroot.
storage=(--storage-driver vfs --root "$folder/storage" --runroot "$folder/run")

if ! buildah "${storage[@]}" images -q localhost/python-debian 2>/dev/null | grep -q .; then
    [ -d "$folder/debian" ] || { debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm \
        "$folder/debian.part" >"$folder/debootstrap.log" && mv "$folder/debian.part" "$folder/debian"; }
    ln -sf python3 "$folder/debian/usr/bin/python"
    # The authorities that this machine trusts: a company's proxy may stand before the registry.
    cp /etc/ssl/certs/ca-certificates.crt "$folder/debian/etc/ssl/certs/ca-certificates.crt"
    container=$(buildah "${storage[@]}" from scratch)
    buildah "${storage[@]}" add --quiet "$container" "$folder/debian" /
    buildah "${storage[@]}" config --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$container"
    buildah "${storage[@]}" commit --quiet --rm "$container" localhost/python-debian
fi
buildah "${storage[@]}" build --isolation chroot --file contrib/Containerfile --build-arg BASE=localhost/python-debian \
    --tag localhost/toolspeak-gateway .
