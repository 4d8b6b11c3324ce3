#!/usr/bin/env bash
# Builds programs of others that tests use from their Go modules into target/tools of the repository:
#   build.sh helm         helm
#   build.sh prometheus   prometheus and promtool
# Does nothing when what is there was built from these sources.
set -euo pipefail

tool=${1:?which tool: helm or prometheus}
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sources=$folder/$tool
out=$(cd "$folder/../.." && pwd)/target/tools

case $tool in
  helm)
    packages=(helm.sh/helm/v3/cmd/helm)
    tags=()
    ;;
  # Without the ways to discover targets that tests have no use for, which are most of it.
  prometheus)
    packages=(github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool)
    tags=(-tags remove_all_sd)
    ;;
  *)
    echo "no tool is called $tool: helm, prometheus" >&2
    exit 2
    ;;
esac

# By content: a checkout makes every file new.
stamp=$out/$tool.cksum
wanted=$(cd "$folder" && cksum build.sh "$tool/go.mod" "$tool/go.sum")
if [[ -x $out/$tool && -f $stamp && $(<"$stamp") == "$wanted" ]]; then
  exit 0
fi
if ! command -v go >/dev/null; then
  echo "building $tool needs Go $(awk '$1 == "go" { print $2 }' "$sources/go.mod") or newer: https://go.dev/dl" >&2
  exit 1
fi

mkdir -p "$out"
cd "$sources"
version_of() { go list -m -f '{{.Version}}' "$1"; }
release=$(version_of "${packages[0]%/cmd/*}")
# Linked in as the releases do it: helm takes the version of Kubernetes for that of the cluster when it renders.
ldflags="-s -w"
case $tool in
  helm)
    IFS=. read -r _ minor _ <<<"$(version_of k8s.io/client-go)"
    ldflags+=" -X helm.sh/helm/v3/internal/version.version=$release"
    for package in chartutil lint/rules; do
      ldflags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$minor"
    done
    ;;
  prometheus) ldflags+=" -X github.com/prometheus/common/version.Version=$release" ;;
esac

echo "building $tool $release from source, once, takes 2 to 4 minutes on two cores"
SECONDS=0
temporary=$(mktemp -d "$out/.$tool.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
CGO_ENABLED=0 go build -mod=readonly -trimpath "${tags[@]}" -ldflags "$ldflags" -o "$temporary/" "${packages[@]}"
mv "$temporary"/* "$out/"
echo "$wanted" >"$stamp"
echo "built $out/$tool in $((SECONDS / 60)) min $((SECONDS % 60)) s"
