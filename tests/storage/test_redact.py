"""Keys are masked where text enters, by rules that others keep; harmless text stays as it is."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import string
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.storage.redact import redact, redacted
from tests.storage import key_shapes

SHAPES = key_shapes.texts()
VARIABLES = key_shapes.variables()

PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIE" * 20 + "\n-----END RSA PRIVATE KEY-----"
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiO"
    "iIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

KEYS = {
    "OpenAI": "sk-proj-abcdEFGH0123456789_-xyz",
    "OpenAI, of one letter": "sk-" + "a" * 20,
    "Anthropic": "sk-ant-api03-abcdefghijklmnop",
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub, fine-grained": "github_pat_" + "a1B2_" * 8,
    "GitLab": "glpat-" + "a1B2" * 5,
    "AWS id": "AKIA" + "ABCD1234" * 2,
    "Google": "AIza" + "a1B2-" * 7,
    "Hugging Face": "hf_" + "a1B2" * 8,
    "Slack": "xoxb-" + "123456789012-abc",
    "Stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "Stripe, restricted": "rk_test_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "npm": "npm_" + "a1B2" * 9,
    "PyPI": "pypi-AgEIcHlwaS5vcmcC" + "a1B2" * 20,
    "SendGrid": "SG." + "a1B2c3" * 11,
    "JWT": JWT,
    "private key": PEM,
}

IN_CONTEXT = {
    "Basic": ("Authorization: Basic {}", base64.b64encode(b"admin:hunter2").decode()),
    "Bearer": ("Authorization: Bearer {}", "abc.def-ghi_jkl="),
    "header": ("x-api-key: {}", "9f8e7d6c5b4a39281706"),
    "header in a program": ("headers = {{'X-API-Key': '{}'}}", "abcd1234efgh5678"),
    "password in an address": ("postgres://app:{}@db:5432/x", "hunter2"),
    "key in an address": ("https://api.example.com/v1?api_key={}", "abc123def456ghi"),
    "token in an address": ("GET /z?a=b&token={} HTTP/1.1", "Zx81kqPm20"),
    "npmrc": ("//registry.npmjs.org/:_authToken={}", "abcdef01-2345-6789-abcd-ef0123456789"),
    "Azure": ("AccountName=x;AccountKey={};EndpointSuffix=core", "Ab1+" * 21 + "Ab1=="),
    "AWS secret": ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY"),
    "DATABASE_URL": ("DATABASE_URL=postgres://u:{}@h/db", "pw12345"),
    "API_KEY_PROD": ("API_KEY_PROD={}", "prod-4f9a1c7e"),
    "DB_PASS": ("DB_PASS={}", "tr0ub4dor&3"),
    "DB_PASS of a word": ("A=1\nDB_PASS={}\nB=2", "swordfishes"),
    "DB_PASS in quotes": ("export DB_PASS='{}'", "tr0ub4dor and 3"),
}

HARMLESS = [
    "",
    "task-abcdefghijklmnopqrstuvwx",
    "sk-learn",
    "sk-toggleable__content-arrow",
    "sk-toggleable__label-arrow:before, #sk-container-id-1 div.sk-parallel-item",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "the bearer of news",
    "bearer certificate-bound tokens",
    "AKIA",
    "desk-abcdefghijklmnopqrstu",
    "https://user:password@host/ and http://{user}:{password}@{host}",
    "SECRET_KEY=os.environ['SECRET_KEY']",
    "PASSWORD=$1 TOKEN=<your token> API_KEY=your-key-here",
    "KEY_FILE=/etc/ssl/private/server.pem",
    "for key, value in tokens.items(): secrets[key]=value12345",
    '"AWS::AppSync::ApiKey": "3d104ea0be48564b"',
    "see https://calculator.example.com/calc5.html?key=cloudformation/7870825a-1def-4def",
    "Basic authentication, basic understanding",
    "-----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_is_masked_wherever_it_stands(key: str) -> None:
    for text in (
        key,
        f"export K={key}\n",
        f"line\n{key}\nline",
        f"({key})",
        f"{key}, {key}",
        f"ü {key}",
        f"\ud800{key}",
    ):
        assert key not in redact(text)
        assert "[redacted]" in redact(text)


@pytest.mark.parametrize(("around", "key"), IN_CONTEXT.values(), ids=IN_CONTEXT)
def test_what_stands_where_keys_stand_is_masked_and_the_rest_stays(around: str, key: str) -> None:
    assert redact(around.format(key)) == around.format("[redacted]")


def _left(secret: str, text: str) -> bool:
    """Whether a third of a secret still stands in a text."""
    third = max(6, len(secret) // 3)
    return any(secret[at : at + third] in text for at in range(len(secret) - third + 1))


@pytest.mark.parametrize(("text", "secret"), SHAPES.values(), ids=SHAPES)
def test_a_shape_of_a_key_is_masked(text: str, secret: str) -> None:
    masked = redact(text)
    assert "[redacted]" in masked
    assert not _left(secret, masked)
    assert redact(masked) == masked
    assert not _left(secret, redact(json.dumps({"output": f"{text}\n"})))


@pytest.mark.parametrize("name", key_shapes.PREFIXES)
def test_what_ends_a_sentence_is_no_part_of_a_key(name: str) -> None:
    assert redact(f"It is {SHAPES[name][0]}. Keep it").endswith(". Keep it")


@pytest.mark.parametrize(("name", "held"), VARIABLES.items(), ids=VARIABLES)
def test_what_a_variable_holds_is_masked_wherever_it_stands(
    name: str, held: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value, secret = held
    monkeypatch.setenv(name, value)
    assert not _left(secret, redact(f"it said {value}, and {secret} alone"))


@pytest.mark.parametrize(
    "name", ["MONKEY", "TURKEYS", "BYPASS", "COMPASS_HOME", "PUBLICKEY", "KEY_TYPE", "TOKENIZERS"]
)
def test_a_variable_whose_name_only_ends_like_a_key_is_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a long enough value")
    assert redact("a long enough value") == "a long enough value"


def test_what_an_agent_acts_on_keeps_passwords_that_its_task_is_about() -> None:
    for text in (
        "login(username='john', password='john1234')",
        '{"access_token": "abc123xyz456", "ttl": 5}',
        "services:\n  db:\n    password: h0rse9Batt\n",
    ):
        assert redact(text, acted_on=True) == text
        assert redacted([text], acted_on=True) == [text]
        assert redact(text) != text
    for key in KEYS.values():
        assert key not in redact(f"password: {key}", acted_on=True)


@pytest.mark.parametrize(
    "text",
    [
        "password: str | None = None, token: bytes32, secret=self.secret1",
        "password: required, 8 to 64 characters",
        'if password == "" or token is None: raise ValueError("password needs 1 digit")',
        'max_tokens: 4096, "cost_per_token": 1.41953125e-07, eos_token: "<|im_end|>"',
        'next_page_token: "CAoQAA9f8e7d6c5b4a", "cache_key": "a94a8fe5ccb19ba61c4c0873d391e987"',
        "PASS: tests/test_a1.py::test_b2\npass: 12/12",
        "token = tokens2[0]; key = conv2d_1.kernel; api_key=os.getenv('K1')",
        "The token is base64 of the id, and the password is utf8.",
        "cookie: theme=dark; lang=en_US",
        "host.py:12:def:x:return 1",
    ],
)
def test_code_and_prose_about_keys_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("least", "less"),
    [
        ("DB_PASS=xyzxyzxy", "DB_PASS=xyxyxyxy"),
        ("DB_PASS=tr0ub4dor", "DB_PASS=tr0ub4d"),
        ("password: a1b2c3", "password: a1b2b"),
        ("password: abcd1a", "password: abc1aa"),
        ("password: abcdef!", "password: abcdefg"),
        ("api_key: ab12cd34ab12cd34", "api_key: ab12ab12ab12ab12"),
        ("api_key: ab12cd34.ef5", "api_key: ab12cd34.ef"),
        ("api_key: ab12cd3e-fgh4", "api_key: ab12cd3-fgh4"),
        ("api_key: abcdefgh1jklMN", "api_key: abcdefgh1jk-lm"),
        ("sk-a1b2c3d4e5f6-g7h8", "sk-a1b2c3d4e5-fghijkl"),
        ("pk-lf-" + "0a1b2c3d-" * 4, "pk-lf-0a1b2c3d"),
        ("Authorization: Basic " + base64.b64encode(b"u:p").decode() + "xx==", "basic dXNlcg=="),
    ],
)
def test_the_least_that_is_a_key_is_masked_and_what_is_less_stays(least: str, less: str) -> None:
    assert "[redacted]" in redact(least)
    assert redact(less) == less


def test_a_text_of_many_addresses_says_nothing_on_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    draw = random.Random(1)
    letters = string.ascii_lowercase + "+.-:/"
    paths = ("".join(draw.choices(letters, k=draw.randrange(200))) for _ in range(2000))
    text = "\n".join(f"http://{path}" for path in paths)
    key = "postgres://app:Hq7_x2Lm9@db"
    assert redact(f"{text}\n{key}").endswith("postgres://app:[redacted]@db")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_texts_stay(text: str) -> None:
    assert redact(text) == text


def test_a_corpus_of_programs_and_prose_stays() -> None:
    files = [*Path(os.__file__).parent.glob("*.py"), *Path(json.__file__).parent.glob("*.py")]
    files += [
        *Path(__file__).parents[2].glob("docs/**/*.md"),
        *Path(__file__).parents[1].glob("lab/retrieval/*.jsonl"),
    ]
    assert len(files) > 150
    assert [f.name for f in files if redact(text := f.read_text("utf-8", "replace")) != text] == []


@pytest.mark.parametrize(
    "text",
    [*KEYS.values(), *(around.format(key) for around, key in IN_CONTEXT.values())],
    ids=[*KEYS, *IN_CONTEXT],
)
def test_in_json_and_in_json_within_it_the_same_is_masked_and_it_stays_json(text: str) -> None:
    for ascii_only in (True, False):
        line = json.dumps({"k": f"x\n{text}\ny", "after": "kept"}, ensure_ascii=ascii_only)
        twice = json.dumps({"arguments": line, "n": 1}, ensure_ascii=ascii_only)
        assert json.loads(redact(line)) == {"k": redact(f"x\n{text}\ny"), "after": "kept"}
        assert json.loads(json.loads(redact(twice))["arguments"]) == json.loads(redact(line))


def test_a_key_that_json_spells_in_another_way_is_masked() -> None:
    assert (
        redact(r'{"command": "echo \u0067hp_' + "a1B2" * 9 + '"}')
        == '{"command": "echo [redacted]"}'
    )


@given(
    st.text() | st.sampled_from([*KEYS.values(), *(a.format(k) for a, k in IN_CONTEXT.values())])
)
def test_what_is_masked_stays_as_it_is(text: str) -> None:
    masked = redact(f"{text} {text}")
    assert redact(masked) == masked


# what this process knows


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "GH_TOKEN",
        "DB_PASSWORD",
        "CLIENT_SECRET",
        "my_key",
        "AWS_CREDENTIALS",
        "DB_PASS",
        "API_KEY_PROD",
    ],
)
def test_values_of_variables_named_like_keys_are_masked_with_their_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert redact("a correct horse battery") == "a correct horse battery"
    monkeypatch.setenv(name, "correct horse")
    assert redact("a correct horse battery") == f"a [redacted:{name}] battery"
    monkeypatch.setenv(name, "another one")  # changed while the process runs
    assert redact("a correct horse, another one") == f"a correct horse, [redacted:{name}]"
    monkeypatch.delenv(name)
    assert redact("another one") == "another one"


def test_the_password_of_an_address_is_masked_also_where_it_stands_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://app:p%40ss-w0rd@db/x")
    assert (
        redact("p@ss-w0rd and p%40ss-w0rd") == "[redacted:DATABASE_URL] and [redacted:DATABASE_URL]"
    )
    monkeypatch.setenv("DATABASE_URL", "sqlite:///local.db")
    assert redact("sqlite:///local.db") == "sqlite:///local.db"


@pytest.mark.parametrize(
    "value",
    ["Zq8vX2mKp7Lw4Rt9Yb3Nd6AA", "Zq8vX2mKp7Lw4Rt9Yb3Nd6A", "p\xfcr?>kp7Lw4", "~~~???>>>~?"],
)
def test_a_value_is_masked_in_base64_and_in_hex_also_as_a_part_of_more(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", value)
    data = value.encode()
    for before, after in itertools.product((b"", b"u", b"us", b"user:"), (b"", b"x", b"xy\n")):
        for encoded in (base64.b64encode, base64.urlsafe_b64encode):
            masked = redact(f"auth: {encoded(before + data + after).decode()}.")
            assert "[redacted:SOME_API_KEY]" in masked
            assert len(masked) < len("auth: [redacted:SOME_API_KEY].") + 20
            assert redact(masked) == masked
    assert (
        redact(f"{data.hex()} {data.hex().upper()}")
        == "[redacted:SOME_API_KEY] [redacted:SOME_API_KEY]"
    )


def test_a_value_of_three_letters_in_turn_is_masked_and_one_of_two_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "xyzxyzxy")
    assert redact("xyzxyzxy") == "[redacted:DB_PASSWORD]"


def test_values_of_the_workspaces_env_file_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.storage import redact as module

    (tmp_path / ".env").write_text(
        "# keys\nexport DB_PASS='of the file'\nTHEME=of the theme\n", "utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_looked", (-1e9, None))
    assert redact("of the file, of the theme") == "[redacted:DB_PASS], of the theme"
    monkeypatch.setattr(module, "_looked", (-1e9, None))


@pytest.mark.parametrize(
    ("line", "text", "masked"),
    [
        ('A_KEY="half of it', 'say "half of it now', "say [redacted:A_KEY] now"),
        ("A_KEY='of the file\"", "say 'of the file\" now", "say [redacted:A_KEY] now"),
        ("A_KEY=as long as a", "as long as a rope", "[redacted:A_KEY] rope"),
        ("A_KEY=of the file # mine", "of the file # mine", "[redacted:A_KEY] # mine"),
        ("A_KEY='of the # file'", "of the # file", "[redacted:A_KEY]"),
        ("  export  A_KEY = of the file ", "of the file", "[redacted:A_KEY]"),
        ("#A_KEY=of the file", "of the file", "of the file"),
        ("A_KEY", "A_KEY of the file", "A_KEY of the file"),
        ("A_KEY='", "it's", "it's"),
    ],
)
def test_a_line_of_the_env_file_is_read_as_a_shell_does(
    line: str, text: str, masked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.storage import redact as module

    (tmp_path / ".env").write_text(f"X=1\n{line}\nY=2\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_looked", (-1e9, None))
    assert redact(text) == masked
    monkeypatch.setattr(module, "_looked", (-1e9, None))


@pytest.mark.parametrize(
    ("password", "masked"),
    [("a1b2c3", True), ("a1b2c", False), ("abcdef", False), ("abcdefgh1", True)],
)
def test_a_short_password_of_an_address_is_masked_alone_where_it_is_no_word(
    password: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgres://app:{password}@db/x")
    assert (redact(f"it is {password} here") != f"it is {password} here") == masked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SOME_KEY", "dev"),  # too short
        ("MONKEY_ISLAND", "a long enough value"),  # another name
        ("PWD", "a long enough value"),
        ("KEY_FILE", "a long enough value"),
        ("DB_PASSWORD", "experience"),  # words of the records
        ("DB_PASSWORD", "validation"),
        ("DB_PASSWORD", "submitted"),
        ("DB_PASSWORD", "isinstance"),
        ("DB_PASSWORD", "00000000"),
        ("DB_PASSWORD", "xyxyxyxy"),
        ("DB_PASSWORD", "Password"),
        ("SOME_KEY", os.__file__),
    ],
)
def test_values_that_would_destroy_texts_and_protect_nothing_are_left_alone(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"here is {value}.") == f"here is {value}."


def test_a_value_that_holds_another_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_KEY", "12345678")
    monkeypatch.setenv("LONG_KEY", "12345678-and-more")
    assert redact("12345678-and-more 12345678") == "[redacted:LONG_KEY] [redacted:SHORT_KEY]"
    monkeypatch.setenv("OTHER_KEY", "SHORT_KEY")  # its value stands in a mask
    assert redact(redact("12345678")) == "[redacted:SHORT_KEY]"


@given(st.text(min_size=8))
def test_a_value_never_survives_plain_or_as_json(value: str) -> None:
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value) or len(set(value)) < 3:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", value)
        if redact(value) == value or value in "[redacted:SOME_TOKEN]" or value in "arguments":
            return  # a word that stands everywhere
        assert value not in redact(f"<{value}>")
        for ascii_only in (True, False):
            line = redact(json.dumps({"k": f"<{value}>"}, ensure_ascii=ascii_only))
            assert value not in json.loads(line)["k"]
            for inner_ascii in (True, False):  # a tool call's arguments are JSON within JSON
                arguments = json.dumps({"k": f"<{value}>"}, ensure_ascii=inner_ascii)
                line = redact(json.dumps({"arguments": arguments}, ensure_ascii=ascii_only))
                assert value not in json.loads(json.loads(line)["arguments"])["k"]


def test_data_is_masked_at_any_depth_and_names_of_fields_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_KEY", "hidden words")
    record = {"hidden words": 1, "steps": [{"output": "hidden words", "n": 1}], "none": None}
    assert redacted(record) == {
        "hidden words": 1,
        "steps": [{"output": "[redacted:SOME_KEY]", "n": 1}],
        "none": None,
    }
    assert redacted(same := {"a": [1, "b"], "c": ("d",)}) is same


HOSTILE = [
    "eyJ",
    "://:a@",
    "=KEY",
    "sk-",
    "a:",
    "KEY=a",
    "-----BEGIN PRIVATE KEY-----",
    "curl -u ",
    "\\n",
    "\\u006",
    "[redacted",
    "a",
    "password=",
    "password: a1b2c3d ",
    "cookie: a=b;",
    "<password>",
    "machine a login b password ",
    '"token": "A1b2c3d4e5f6g7 ',
    "mysql -p",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.slow
def test_the_time_grows_with_the_length_whatever_is_in_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        best = []
        for _ in range(3):
            begun = time.process_time()
            redact(text)
            best.append(time.process_time() - begun)
        return min(best)

    seconds(1000)
    # quadratic would be 16 times, and seconds
    assert seconds(400_000) < 16 * seconds(100_000) + 0.05
