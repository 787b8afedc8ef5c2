#!/usr/bin/env python3
"""What `kernelopt doctor` and `tune` say on a host with a GPU: `doctor.py PATH/TO/kernelopt [BUNDLE]`.

Needs `KERNELOPT_PYTHON` and `PYTHONPATH` as `kernelopt` does. BUNDLE is any captured on a GPU; by default the fixture from an H200.
"""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from byte_code import keep_byte_code

HERE = Path(__file__).resolve().parent
PROGRAM = sys.argv[1]
BUNDLE = sys.argv[2] if len(sys.argv) > 2 else str(HERE.parent / "fixtures/bundles/softmax_cuda")
ENDS_WITHIN = 300


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], env={**os.environ, **environment}, capture_output=True, text=True, timeout=ENDS_WITHIN)


def doctor(**environment: str) -> dict[str, list[dict[str, str]]]:
    done = run("doctor", "--json", **environment)
    checks: dict[str, list[dict[str, str]]] = {}
    for check in json.loads(done.stdout):
        checks.setdefault(check["name"], []).append(check)
        print(f"{check['status']:8} {check['name']:12} {check['detail']}" + (f"\n{'':22}-> {check['remedy']}" if check["remedy"] else ""))
    print(f"exit code {done.returncode}\n")
    assert done.returncode == (4 if any(check["status"] == "missing" for all_of in checks.values() for check in all_of) else 0)
    return checks


def refused(code: int, *words: str, device: str = "auto", **environment: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        done = run("tune", BUNDLE, "-o", str(out), "--device", device, **environment)
        print(f"{device} {environment}: exit code {done.returncode}\n{done.stderr}")
        assert done.returncode == code and not out.exists()
        assert all(word in done.stderr for word in words), words


def main() -> None:
    keep_byte_code()
    healthy = doctor()
    for name in ("driver", "gpu", "nvml", "clocks", "counters", "cuda", "triton", "builder"):
        assert all(check["status"] == "ok" for check in healthy[name]), name
    assert "lock" not in healthy, "another search is at work on this host"

    uuid = healthy["gpu"][0]["detail"].rsplit(" ", 1)[1]
    folder = Path("/dev/shm/kernelopt")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    with open(folder / f"{uuid}.lock", "w+") as lock:
        lock.write("process 1 (somebody)")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "process 1 (somebody)" in doctor()["lock"][0]["detail"]

    hidden = doctor(CUDA_VISIBLE_DEVICES="")
    assert "driver" not in hidden and hidden["gpu"][0]["status"] == "ok" and hidden["gpu"][0]["detail"].startswith("no GPU")

    refused(4, "CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES="")
    refused(4, f"no GPU cuda:99; cuda:0 is {healthy['gpu'][0]['detail'].split(' ', 1)[1].split(',')[0]}", device="cuda:99")
    refused(3, "captured on cuda", device="cpu")
    print("all as it should be")


if __name__ == "__main__":
    main()
