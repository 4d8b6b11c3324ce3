#!/usr/bin/env bash
# Builds etcd, kube-apiserver and kube-controller-manager into target/controlplane of the repository.
# Does nothing when the binary there was built from these sources.
set -euo pipefail

sources=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(cd "$sources/../.." && pwd)/target/controlplane
binary=$out/controlplane

mkdir -p "$out"
for program in etcd kube-apiserver kube-controller-manager; do
  ln -sfn controlplane "$out/$program"
done

# By content: a checkout makes every file new.
stamp=$out/sources.cksum
wanted=$(cd "$sources" && cksum build.sh go.mod go.sum main.go)
if [[ -x $binary && -f $stamp && $(<"$stamp") == "$wanted" ]]; then
  exit 0
fi
if ! command -v go >/dev/null; then
  problem="there is no \`go\`"
elif problem=$(cd "$sources" && go list -m 2>&1); then
  problem=""
fi
if [[ -n $problem ]]; then
  echo "building the control planes needs Go $(awk '$1 == "go" { print $2 }' "$sources/go.mod") or newer: $problem" >&2
  echo "install it from https://go.dev/dl, or let KUBEBUILDER_ASSETS name a folder with etcd, kube-apiserver and" \
    "kube-controller-manager" >&2
  exit 1
fi

# The version is linked in as the releases do it: /version, and what clients decide by it, depends on it. A module
# names no commit, and a date would make each build another.
kubernetes=$(cd "$sources" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${kubernetes#v}"
ldflags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  ldflags+=" -X $package.gitTreeState=clean -X $package.gitCommit=$kubernetes"
  ldflags+=" -X $package.buildDate=1970-01-01T00:00:00Z"
done

echo "building etcd and Kubernetes $kubernetes from source, once, takes 4 to 10 minutes on two cores"
echo "  1 of 2: fetching modules"
(cd "$sources" && go mod download)

echo "  2 of 2: compiling about 2400 packages"
temporary=$out/.controlplane.$$
log=$out/build.log
trap 'rm -f "$temporary"' EXIT
SECONDS=0
(cd "$sources" && CGO_ENABLED=0 go build -v -mod=readonly -trimpath -ldflags "$ldflags" -o "$temporary" .) 2>"$log" &
build=$!
while kill -0 "$build" 2>/dev/null; do
  for _ in {1..30}; do
    kill -0 "$build" 2>/dev/null || break
    sleep 1
  done
  echo "  $(wc -l <"$log") packages compiled, $((SECONDS / 60)) min $((SECONDS % 60)) s"
done
if ! wait "$build"; then
  echo "the build failed; the end of $log:" >&2
  tail -n 20 "$log" >&2
  exit 1
fi
mv "$temporary" "$binary"
echo "$wanted" >"$stamp"
echo "built $binary ($(du -m "$binary" | cut -f1) MB) in $((SECONDS / 60)) min $((SECONDS % 60)) s"
