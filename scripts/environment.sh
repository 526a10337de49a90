#!/bin/sh
# Makes the environment that a run on a host elsewhere uses: a supervisor runs this in the worktree, once a lock file,
# with FMHA_ENVIRONMENT naming the directory to fill. FMHA_DEVICE says what the runs there run on.
set -eu
python=${FMHA_PYTHON:-python3}
"$python" -m venv "$FMHA_ENVIRONMENT"
bin=$FMHA_ENVIRONMENT/bin
sets=run
[ "${FMHA_DEVICE:-}" != emulator ] || sets='build run nvcc'
"$bin/python" scripts/requirements.py $sets >"$FMHA_ENVIRONMENT/requirements.txt"
"$bin/python" -m pip install -qq --disable-pip-version-check --no-input -c constraints.txt -r "$FMHA_ENVIRONMENT/requirements.txt"
[ "${FMHA_DEVICE:-}" = emulator ] || exit 0
# The emulator's core is compiled from the commit's sources, which are part of what this environment is named by.
"$bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-deps --no-build-isolation \
  -C build-dir="$FMHA_ENVIRONMENT/build" --target "$FMHA_ENVIRONMENT/package" .
mkdir -p "$FMHA_ENVIRONMENT/tree/emulator"
mv "$FMHA_ENVIRONMENT"/package/emulator/_core*.so "$FMHA_ENVIRONMENT/tree/emulator/"
rm -rf "$FMHA_ENVIRONMENT/package" "$FMHA_ENVIRONMENT/build"
