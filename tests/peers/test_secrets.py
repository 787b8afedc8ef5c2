"""Keys, and what is said, are in no log, metric or answer, also where an upstream repeats them."""

import secrets

from conftest import SECRETS
from rig import ask

SAID = f"said-{secrets.token_hex(16)}"


def test_no_key_is_seen_anywhere(gateway, chaos):
    caller = SECRETS["CALLER"]
    wrong = f"canary-wrong-{secrets.token_hex(16)}"

    def say(model: str, key: str = caller, stream: bool = False):
        body = {"model": model, "messages": [{"role": "user", "content": SAID}], "max_tokens": 4, "stream": stream}
        return ask(f"{gateway.url}/v1/chat/completions", body, key)

    chaos.plan()
    seen = [say("small-openai"), say("small-anthropic", stream=True), say("absent"), say("small-openai", key=wrong), say("refused")]
    assert [answer.status for answer in seen] == [200, 200, 404, 401, 502]
    # An upstream that says the key in its error, as real ones have done.
    for status in (400, 500, 401):  # 401 last: the credential rests after it
        chaos.plan({"type": "fail", "status": status, "message": f"the key {SECRETS['CHAOS']} is not good", "times": 4})
        seen.append(say("chaos-openai"))
        assert seen[-1].status >= 400
    chaos.plan()
    seen += [ask(f"{gateway.url}{path}", key=caller) for path in ("/metrics", "/healthz", "/readyz", "/v1/models")]

    log = gateway.log.read_text()
    assert log, "a log that is empty proves nothing"
    places = {"log": log} | {f"answer {i}": answer.head + answer.body for i, answer in enumerate(seen)}
    for name, secret in (SECRETS | {"WRONG": wrong}).items():
        assert [place for place, text in places.items() if secret in text] == [], name
    assert SAID not in log + gateway.metrics()
