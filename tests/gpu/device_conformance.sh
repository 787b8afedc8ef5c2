#!/usr/bin/env bash
# The conformance suite of devices on this host's GPU: device_conformance.sh PROGRAM [ARGUMENT...]
#
# PROGRAM is the test program, built anywhere by `cargo test --no-run -p kernelopt-gpu-agent --test device_conformance`; it needs no cargo here.
# What is needed here: a driver, and a Python with NVRTC (torch's, or CUDA's). Further arguments go to the program.
set -euo pipefail
program=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
suite=$here/../../gpu-agent/tests/device_conformance
ops=$here/../../gpu-agent/src/cuda/ops
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
"${PYTHON:-python3}" "$here/ops_cubin.py" "$folder/ops.cubin" "$ops" --arch "sm_$capability"
"${PYTHON:-python3}" "$here/ops_cubin.py" "$folder/kernels.cubin" "$suite/kernels.cu" --arch "sm_$capability"
KERNELOPT_GPU_TESTS=1 KERNELOPT_OPS_CUBIN=$folder/ops.cubin KERNELOPT_TEST_CUBIN=$folder/kernels.cubin \
  "$program" --test-threads 1 --nocapture "$@"
