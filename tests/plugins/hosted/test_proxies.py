"""Proxies through litellm: what the environment names is used, or refused by name."""

from __future__ import annotations

import pytest

from recreate.api.errors import BadInput, Transient
from recreate.plugins.hosted.litellm import LiteLLM
from tests.models.test_proxies import CALL, HELLO, VARIABLES


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_same_holds_through_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> str:
        model = LiteLLM("openai/gpt-4o-mini", api_base="https://api.example/v1")
        with pytest.raises((BadInput, Transient)) as e:
            model.reply(HELLO, CALL, timeout=20.0)
        assert isinstance(e.value, BadInput | Transient)
        return f"{e.value.code}: {e.value.message}"

    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret77@127.0.0.1:9")
    assert "http://me:***@127.0.0.1:9" in ask()
    monkeypatch.setenv("HTTPS_PROXY", "socks5h://10.0.0.1:1080")
    import litellm

    litellm.sync_transport.close()  # connections are made anew
    assert ask().startswith("bad-proxy: HTTPS_PROXY names socks5h://10.0.0.1:1080")
