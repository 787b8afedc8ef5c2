"""What a fuzzer cannot guess: names of things that are there. A value that is valid becomes one that exists; the others stay as drawn."""

import os
import re

import schemathesis

BUNDLE = os.environ["KERNELOPT_FUZZ_BUNDLE"]
EXISTING = {"digest": BUNDLE, "id": "j000001", "host": "gpu1"}
DIGEST = re.compile(r"[0-9a-fA-F]{32}")
NAME = re.compile(r"(\.?[A-Za-z0-9_/-])*\.?")


@schemathesis.hook
def map_body(context, body):
    # Without its bundle no job is taken.
    if isinstance(body, dict) and isinstance(body.get("bundle"), str) and DIGEST.fullmatch(body["bundle"]):
        body["bundle"] = BUNDLE
    return body


@schemathesis.hook
def map_path_parameters(context, parameters):
    for name, existing in EXISTING.items():
        drawn = (parameters or {}).get(name)
        pattern = DIGEST if name == "digest" else NAME
        # Every other one, so that there are unknown ones too.
        if isinstance(drawn, str) and 0 < len(drawn) <= 40 and pattern.fullmatch(drawn) and len(drawn.strip("0")) % 2:
            parameters[name] = existing
    return parameters
