#!/usr/bin/env bash
# Install the example package beside sitar, run its tests, and train, compare and report its method beside ours.
# It is installed into a folder of its own, so that the environment stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip install --quiet --no-deps --target "$work/site" ./examples/sitar-mixup
export PYTHONPATH="$work/site${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
"$python" -m pytest -q -p no:cacheprovider examples/sitar-mixup/tests

cd "$work"
sitar() { "$python" -P -m sitar "$@"; }
sitar presets | grep -q stripes/mixup
sitar data check stripes
for method in erm mixup; do
  sitar train "stripes/$method" --quiet --set train.epochs=2 --out "$method"
done
sitar compare erm mixup
sitar explain erm mixup
sitar report erm mixup --out report.html
grep -q stripes/mixup report.html
echo "example package: works"
