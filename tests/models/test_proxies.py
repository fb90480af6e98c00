"""Proxies: what the environment names is used as it says, or refused by name."""

from __future__ import annotations

import base64

import pytest

from recreate.api.errors import BadInput, Refused, Transient
from recreate.api.types import Call, Message
from recreate.models.openai import OpenAI
from recreate.models.proxies import find_proxy
from tests.stub import Stub, saying

CALL = Call(run="run", attempt="attempt", step=7)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
BAD = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("variable", ["{}_PROXY", "{}_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("before", ["http://", ""])
def test_user_and_password_are_sent_and_a_proxy_needs_no_scheme(
    monkeypatch: pytest.MonkeyPatch, scheme: str, variable: str, before: str
) -> None:
    with saying(REFUSED) as (port, heads):
        monkeypatch.setenv(
            variable.format(scheme.upper() if variable.isupper() else scheme),
            f"{before}me:p%40ss:word@127.0.0.1:{port}",
        )
        model = OpenAI(f"{scheme}://api.example/v1#m")
        with pytest.raises(Refused) as e:
            model.reply(HELLO, CALL)
        model.close()
    key = base64.b64encode(b"me:p@ss:word")
    assert b"proxy-authorization: basic " + key.lower() in heads[0].lower()
    assert (b"api.example" in heads[0], e.value.code) == (True, "refused-proxy")
    assert f"the proxy http://me:***@127.0.0.1:{port}" in e.value.message
    assert "p@ss" not in e.value.message + e.value.fix
    assert "p%40ss" not in e.value.message + e.value.fix


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("socks5h://me:secret77@10.0.0.1:1080", "socks5h://me:***@10.0.0.1:1080"),
        ("socks5://10.0.0.1:1080", "socks5://10.0.0.1:1080"),
        ("https://10.0.0.1:3129", "https://10.0.0.1:3129"),
        ("http://", "no address"),
        ("http://10.0.0.1:port", "no address"),
    ],
)
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
def test_a_proxy_of_another_kind_is_refused_by_name_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str, variable: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(BadInput) as e:
        OpenAI("https://api.example/v1#m")
    assert f"{variable} names {shown}:" in e.value.message
    assert f"export {variable}=http://" in e.value.fix
    assert "NO_PROXY=api.example" in e.value.fix
    assert "secret77" not in e.value.message + e.value.fix


@pytest.mark.parametrize(
    ("spared", "host", "port", "straight"),
    [
        ("api.example", "api.example", None, True),
        ("api.example:443", "api.example", None, True),
        ("api.example:8443", "api.example", None, False),
        ("api.example:8443", "api.example", 8443, True),
        ("example", "api.example", None, True),
        (".example", "api.example", None, True),
        ("*.example", "api.example", None, True),
        ("ample", "api.example", None, False),
        ("a, api.example ,b", "api.example", None, True),
        ("*", "api.example", None, True),
        ("10.0.0.0/8", "10.1.2.3", 80, True),
        ("10.0.0.0/8", "11.1.2.3", 80, False),
        ("10.0.0.5/8", "10.1.2.3", 80, True),
        ("10.1.2.3:80", "10.1.2.3", 80, True),
        ("", "127.0.0.1", 8000, True),
        ("", "localhost", 8000, True),
        ("", "::1", 8000, True),
        ("", "api.example", None, False),
    ],
)
def test_who_is_reached_without_a_proxy_is_read_as_others_read_it(
    monkeypatch: pytest.MonkeyPatch, spared: str, host: str, port: int | None, straight: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://10.9.9.9:3128")
    monkeypatch.setenv("NO_PROXY", spared)
    assert (find_proxy("https", host, port) is None) == straight


@pytest.mark.parametrize(
    ("text", "port", "shown", "key"),
    [
        ("http://p.example", 80, "http://p.example:80", ""),
        ("p.example:3128", 3128, "http://p.example:3128", ""),
        ("http://me@p.example", 80, "http://me@p.example:80", "me:"),
        ("http://:word@p.example", 80, "http://:***@p.example:80", ":word"),
        ("http://me:word@p.example", 80, "http://me:***@p.example:80", "me:word"),
    ],
)
def test_what_a_proxys_address_says_is_read(
    monkeypatch: pytest.MonkeyPatch, text: str, port: int, shown: str, key: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", text)
    found = find_proxy("https", "api.example", None)
    assert found is not None
    assert (found.host, found.port, found.shown) == ("p.example", port, shown)
    sent = {"Proxy-Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"}
    assert found.headers == (sent if key else {})


@pytest.mark.parametrize(
    ("spared", "port", "straight"),
    [
        ("api.example:80", None, True),
        ("api.example:443", None, False),
        ("api.example:79", None, False),
        ("api.example:8080", 8080, True),
    ],
)
def test_a_spared_port_of_http_is_80_where_none_is_said(
    monkeypatch: pytest.MonkeyPatch, spared: str, port: int | None, straight: bool
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://10.9.9.9:3128")
    monkeypatch.setenv("NO_PROXY", spared)
    assert (find_proxy("http", "api.example", port) is None) == straight


def test_a_proxy_that_spares_a_host_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5h://10.0.0.1:1080")
    with Stub() as stub:
        model = OpenAI(f"{stub.url}#m")
        assert model.reply(HELLO, CALL).text == "ok"
        model.close()


@pytest.mark.parametrize(
    ("scheme", "answer", "code"),
    [
        ("http", BAD, "http-502"),
        ("https", BAD, "proxy"),
        ("http", b"", "reset"),
        ("https", b"", "reset"),
        ("https", b"HTTP/1.1 403 Forbidden\r\n\r\n", "proxy"),
    ],
)
def test_what_a_proxy_breaks_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, scheme: str, answer: bytes, code: str
) -> None:
    with saying(answer) as (port, _):
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://me:secret77@127.0.0.1:{port}")
        model = OpenAI(f"{scheme}://api.example/v1#m")
        with pytest.raises(Transient) as e:
            model.reply(HELLO, CALL)
        model.close()
    assert e.value.code == code
    assert f"http://me:***@127.0.0.1:{port}" in e.value.message
    assert "secret77" not in e.value.message


def test_a_proxy_that_is_down_or_unknown_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, code in (
        ("127.0.0.1:9", "connection-refused"),
        ("no.such.invalid:1", "unknown-host"),
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret77@{place}")
        model = OpenAI("https://api.example/v1#m")
        with pytest.raises(Transient) as e:
            model.reply(HELLO, CALL)
        assert (e.value.code, f"http://me:***@{place}" in e.value.message) == (code, True)
        assert e.value.unspent
