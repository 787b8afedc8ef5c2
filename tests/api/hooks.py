"""What a fuzzer cannot guess: names of things that are there. A value that is valid becomes one that exists; the others stay as drawn."""

import hashlib
import os
import re

import schemathesis

BUNDLE = os.environ["KERNELOPT_FUZZ_BUNDLE"]
EXISTING = {"digest": BUNDLE, "id": os.environ.get("KERNELOPT_FUZZ_JOB", "j000001"), "host": "gpu1"}
DIGEST = re.compile(r"[0-9a-fA-F]{32}")
NAME = re.compile(r"(\.?[A-Za-z0-9_/-])*\.?")
PROPOSER = re.compile(r"[a-z0-9_-]{1,40}")


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.label == "POST /v1/jobs":
        of_a_bundle(case.body)
        by_who_is_there(case.body)
    if case.operation.label == "PUT /v1/blobs/{digest}":
        under_its_name(case.path_parameters, case.body)


def of_a_bundle(body):
    """Without its bundle no job is taken."""
    if isinstance(body, dict) and isinstance(body.get("bundle"), str) and DIGEST.fullmatch(body["bundle"]):
        body["bundle"] = BUNDLE


def by_who_is_there(body):
    """A proposer is named by a word of the program's own."""
    if isinstance(body, dict) and isinstance(body.get("proposers"), list) and 1 <= len(body["proposers"]) <= 8:
        body["proposers"] = ["schedule" if isinstance(name, str) and PROPOSER.fullmatch(name) else name for name in body["proposers"]]


def under_its_name(path, body):
    """An upload that is meant well has its own digest for a name."""
    if isinstance(path.get("digest"), str) and DIGEST.fullmatch(path["digest"]):
        content = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b""
        path["digest"] = hashlib.sha256(len(content).to_bytes(8, "little") + content).hexdigest()[:32]


@schemathesis.hook
def map_path_parameters(context, parameters):
    for name, existing in EXISTING.items():
        drawn = (parameters or {}).get(name)
        pattern = DIGEST if name == "digest" else NAME
        # Every other one, so that there are unknown ones too.
        if isinstance(drawn, str) and 0 < len(drawn) <= 40 and pattern.fullmatch(drawn) and len(drawn.strip("0")) % 2:
            parameters[name] = existing
    return parameters
