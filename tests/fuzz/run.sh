#!/bin/sh
# Fuzzes the manifest loader for SECONDS (default 60). A failing input is kept under
# tests/fuzz/artifacts and its replay command printed by libFuzzer's report below.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
mkdir -p corpus artifacts
# A named target keeps the instrumentation out of build scripts and procedural macros.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --bin manifests --target "$host"
if ! "./target/$host/release/manifests" corpus seeds -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=16384 -artifact_prefix=artifacts/ -print_final_stats=1; then
  echo "fuzzing failed; replay with: cd tests/fuzz && ./target/$host/release/manifests artifacts/FILE" >&2
  exit 1
fi
