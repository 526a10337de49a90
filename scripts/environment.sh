#!/bin/sh
# Makes the environment that a run on a host elsewhere uses: a supervisor runs this in the worktree, once a lock file,
# with FMHA_ENVIRONMENT naming the directory to fill. FMHA_DEVICE says what the runs there run on.
set -eu
python=${FMHA_PYTHON:-python3}
"$python" -m venv "$FMHA_ENVIRONMENT"
bin=$FMHA_ENVIRONMENT/bin
case ${FMHA_DEVICE:-} in
  emulator) sets='build run' ;;
  cuda) sets='run cuda' ;;
  *) sets=run ;;
esac
install() {
  "$bin/python" scripts/requirements.py "$@" >"$FMHA_ENVIRONMENT/requirements.txt"
  "$bin/python" -m pip install --progress-bar off --disable-pip-version-check --no-input -c constraints.txt -r "$FMHA_ENVIRONMENT/requirements.txt"
}
install $sets
# A host that has an nvcc that will do keeps it. One that FMHA_NVCC names is used or refused, never replaced.
[ -n "${FMHA_NVCC:-}" ] || "$bin/python" -c 'from fmha.harness.worker.compilers.nvcc import find_nvcc; find_nvcc()' 2>/dev/null || install nvcc
[ "${FMHA_DEVICE:-}" = emulator ] || exit 0
# The emulator's core is compiled from the commit's sources, which are part of what this environment is named by.
"$bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --no-build-isolation \
  --config-settings build-dir="$FMHA_ENVIRONMENT/build" --target "$FMHA_ENVIRONMENT/package" .
mkdir -p "$FMHA_ENVIRONMENT/tree/emulator"
mv "$FMHA_ENVIRONMENT"/package/fmha/emulator/_core*.so "$FMHA_ENVIRONMENT/tree/emulator/"
rm -rf "$FMHA_ENVIRONMENT/package" "$FMHA_ENVIRONMENT/build"
