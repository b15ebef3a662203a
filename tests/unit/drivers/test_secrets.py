"""What is taken for a secret, and what is written in its place."""

from __future__ import annotations

import os
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base import secrets
from tare.base.secrets import Scrubber, collecting, mask, masked_env, masked_text, masked_words
from tare_inside import jobs, launch


def test_both_sides_go_by_the_same_names():
    words = ("HF_TOKEN", "TOKENIZERS_PARALLELISM", "MY_TOKENIZER_KEY", "OMP_NUM_THREADS", *launch.SECRET)

    assert [name for name in words if not jobs.SECRETS.search(name)] == ["TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS"]
    assert all(launch.is_secret(name) == bool(jobs.SECRETS.search(name)) for name in words)
    assert all(secrets.NAMES.search(name) for name in ("DATABASE_URL", "REDIS_URL", "SENTRY_DSN", "DB_CONN_STR"))


CANARY = "CANARYcanary7"


def test_of_all_variables_only_values_that_say_nothing_of_anybody_are_shown():
    shown = secrets.shown_env(
        {
            "DATABASE_URL": f"postgres://ada:{CANARY}@db/app", "HTTPS_PROXY": f"http://ada:{CANARY}@proxy:3128",
            "APP_SETTING": CANARY, "OMP_NUM_THREADS": CANARY + "x://a:b@c", "HF_TOKEN": "1", "PIN": "1234567890123",
            "TOKENIZERS_PARALLELISM": "false", "LOGLEVEL": "DEBUG", "GOMAXPROCS": "1", "CACHE": "64MiB",
            "PYTHONMALLOC": "debug",
        }
    )  # fmt: skip

    assert CANARY not in str(shown)
    hidden = [name for name, value in shown.items() if secrets.is_mask(value)]
    assert hidden == ["DATABASE_URL", "HTTPS_PROXY", "APP_SETTING", "OMP_NUM_THREADS", "HF_TOKEN", "PIN"]
    assert secrets.revealed(shown["APP_SETTING"]) == CANARY
    assert secrets.revealed("hmac:0000:0000000000000000") is None and secrets.revealed("plain") == "plain"


@pytest.mark.parametrize(
    ("name", "value"),
    [("MYSQL_PWD", "12345678"), ("DB_PWD", "1234"), ("VAULT_PIN", "4711"), ("AWS_ACCOUNT_ID", "123456"),
     ("OTP", "123"), ("ACCESS_CODE", "42"), ("USER_ID", "1234567")],
)  # fmt: skip
def test_a_secret_of_digits_alone_is_not_shown(name: str, value: str):
    assert secrets.is_mask(secrets.shown_env({name: value})[name])


@pytest.mark.parametrize(
    ("name", "value"), [("SPIN_COUNT", "100000"), ("ENCODER", "1"), ("CACHE", "13421772k"), ("RATE", "0.0000001")]
)
def test_a_short_number_of_another_variable_is_shown(name: str, value: str):
    assert secrets.shown_env({name: value}) == {name: value}


def test_a_digest_needs_the_key_of_this_machine_which_nobody_else_may_read(tmp_path, monkeypatch):
    made = {}
    for name in ("one", "other"):
        monkeypatch.setenv("TARE_STATE", str(tmp_path / name))
        made[name] = secrets.digest("abcd")
        assert secrets.digest("abcd") == made[name] != secrets.digest("abce")

    assert (tmp_path / "one" / "digest.key").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in (tmp_path / "one").iterdir()] == ["digest.key"]
    assert made["one"] != made["other"] and not secrets.are_comparable(made["one"], made["other"])
    assert secrets.are_comparable(made["one"], "8")


def test_where_no_key_can_be_kept_a_digest_holds_for_this_process(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "file" / "state"))

    assert secrets.digest("abcd") == secrets.digest("abcd")


def test_a_mask_tells_secrets_apart_and_stands_for_itself():
    assert mask("a") != mask("b")
    assert mask(mask("a")) == mask("a")
    assert mask("\udcff").startswith("hmac:")  # a byte that is no text


def test_variables_keep_their_names():
    shown = masked_env({"AWS_SECRET_ACCESS_KEY": "x", "wandb_api_key": "y", "OMP_NUM_THREADS": "2"})
    assert shown == {"AWS_SECRET_ACCESS_KEY": mask("x"), "wandb_api_key": mask("y"), "OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize(
    "words",
    [
        ["x", "--api-key=CANARY"], ["x", "--token", "CANARY"], ["x", "-token", "CANARY"], ["x", "--apiKey=CANARY"],
        ["x", "--db.password", "CANARY"], ["x", "--pass=CANARY CANARY"], ["x", "--auth", "CANARY"],
        ["env", "HF_TOKEN=CANARY", "python"], ["env", "MY_SECRET=CANARY CANARY", "python"],
        ["sh", "-c", "run; HF_TOKEN='CANARY CANARY' python x"], ["sh", "-c", "python x --password CANARY --lr 1"],
        ["git", "clone", "https://me:CANARY@host/x"], ["pip", "-i=https://CANARY@host/x"],
    ],
)  # fmt: skip
def test_secrets_on_a_command_line_are_masked(words: list[str]):
    shown = masked_words(words)
    assert "CANARY" not in " ".join(shown)
    assert len(shown) == len(words)
    assert masked_words(shown) == shown


@pytest.mark.parametrize(
    "words",
    [
        ["x", "--tokenizer", "bert", "--max-tokens=5", "--passes", "3", "--bypass=2", "--author=me", "--sort-keys=1"],
        ["x", "--token", "--verbose"], ["x", "--token"], ["python", "-c", "key = 3"], ["monkey", "business"],
        ["sh", "-c", "the key is here"], ["curl", "http://host:80/x"],
    ],
)  # fmt: skip
def test_what_is_no_secret_is_left_to_be_read(words: list[str]):
    assert masked_words(words) == words


# What a password is made of: at least one sign that is no small letter, so that `-p` before it is not read as `-print`.
PASSWORDS = st.text(string.ascii_letters + string.digits + "!#$%^&*+=_.~-", min_size=8, max_size=40).filter(
    lambda text: any(sign in string.ascii_uppercase for sign in text) and not text.startswith("-")
)
PLAIN = st.text(string.ascii_letters + string.digits + "+._~-", min_size=8, max_size=40).filter(
    lambda text: any(sign in string.ascii_uppercase for sign in text) and not text.startswith("-")
)


@given(PASSWORDS)
def test_a_password_in_an_address_is_masked_in_variables_words_and_text(secret: str):
    address = f"postgres://me:{secret}@db.local:5432/runs"
    assert secret not in masked_env({"DATABASE_URL": address})["DATABASE_URL"]
    assert secret not in " ".join(masked_words(["train", address, f"--store={address}"]))
    assert secret not in masked_text(f"OperationalError: cannot connect to {address}, is it there?")


@given(PASSWORDS, st.sampled_from(["mysql", "train"]))
def test_a_password_behind_p_is_masked(secret: str, program: str):
    shown = masked_words([program, f"-p{secret}", "db"])
    assert secret not in " ".join(shown)
    assert masked_words(shown) == shown


FORMS = [
    "Bearer {}", "Authorization: Bearer {}", "authorization: basic {}", "X-Api-Key: {}", '{{"password": "{}"}}',
    "api_key: {}", "Cookie: session={}", "curl -H 'Bearer {}'",
]  # fmt: skip


@given(PLAIN, st.sampled_from(FORMS))
def test_a_token_in_a_header_is_masked_wherever_it_stands(secret: str, form: str):
    text = form.format(secret)
    assert secret not in masked_text(text)
    assert secret not in " ".join(masked_words(["curl", "-H", text, "http://host/x"]))
    assert secret not in masked_env({"EXTRA_HEADERS": text})["EXTRA_HEADERS"]


@given(st.text(min_size=6, max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_a_secret_that_is_known_is_masked_with_nothing_before_it(secret: str, before: str, after: str):
    with collecting() as seen:
        masked_env({"HF_TOKEN": secret})
    scrubber = Scrubber(seen)
    assert secret not in scrubber.text(f"{before}{secret}{after}").replace(mask(secret), "")
    assert secret not in str(scrubber.data({"a": [f"x{secret}", {"b": (secret,)}], "n": 3})).replace(mask(secret), "")


@pytest.mark.parametrize(
    "part", ["a", "a.", "token", "-", "--key ", "://a", "key=", "Bearer ", "token  :", ".-", "secret-", "key='"]
)
def test_what_a_workload_prints_is_read_in_time_that_grows_with_it_and_no_faster(part: str):
    begin_s = time.process_time()
    for text in (part * (100_000 // len(part)), f"token {part * (100_000 // len(part))}"):
        masked_text(text)
        masked_words(["train", text])
    assert time.process_time() - begin_s < 50  # a tenth of a second a text; it was hours


WITH_A_FORM = ["ghp_", "github_pat_11A_", "glpat-", "hf_", "sk-proj-9", "xoxb-1-", "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0."]


@pytest.mark.parametrize("begin", WITH_A_FORM)
def test_a_token_that_has_a_form_of_its_own_is_masked_with_nothing_before_it(begin: str):
    token = begin + "a1B2c3D4" * 5
    for text in (token, f"got {token}, thanks", f'["{token}"]'):
        assert token not in masked_text(text)
        assert mask(token) in masked_text(text)
    assert masked_words(["train", token]) == ["train", mask(token)]
    assert masked_text(f"x{token}") == f"x{token}"  # a part of another word
    plain = "task-list hf_hub sk-learn-contrib-with-a-long-name-of-words ghp_short"
    assert masked_text(plain) == plain


def test_the_user_of_curl_keeps_the_name_and_loses_the_password():
    assert masked_words(["curl", "-u", "me:hidden1", "http://x"]) == ["curl", "-u", f"me:{mask('hidden1')}", "http://x"]


@pytest.mark.parametrize("words", [["docker", "-p8080:80"], ["find", "-print"], ["x", "-path", "-p"]])
def test_other_options_with_p_are_left_to_be_read(words: list[str]):
    assert masked_words(words) == words


def test_data_without_the_key_is_the_same_on_every_machine():
    of_image = "app@sha256:" + "0123456789ab" * 5 + "cdef"
    ours, theirs = (
        {"env": {"HF_TOKEN": stands}, "argv": ["app", f"--key={stands}"], "image": of_image}
        for stands in ("hmac:0a1b:0123456789abcdef", "sha256:0123456789ab")
    )

    assert secrets.without_key(ours) == secrets.without_key(theirs)
    assert secrets.without_key(ours)["image"] == of_image


def test_the_key_is_kept_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refused)
    first = secrets._key(tmp_path)

    assert (tmp_path / "digest.key").read_bytes() == first
    assert (tmp_path / "digest.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["digest.key"]


@pytest.mark.parametrize(
    "script",
    [
        "curl -fsS -u admin:s3cretpw http://db/health || exit 1",
        "cd /x && curl --user 'admin:s3cretpw' http://db; true",
        'curl -u admin:"s3cretpw" http://db',
        "echo don't; mysql -ps3cretpw db",
        "sh -c 'mysqladmin -ps3cretpw ping'",
        "x=$(curl -u admin:s3cretpw)",
    ],
)
def test_a_script_that_is_one_word_is_masked_as_the_line_that_it_is(script: str) -> None:
    shown = masked_words(["sh", "-c", script])

    assert "s3cretpw" not in " ".join(shown) and "hmac:" in shown[2]
    assert masked_words(shown) == shown


def test_a_script_without_a_secret_stays_as_it_is() -> None:
    script = "import torch; print('a  b', max(key=len))\nfor x in y: pass  # it's -u here"

    assert masked_words(["sh", "-c", "cd /a && ./run --lr '0.1 0.2' | tee x"])[2].startswith("cd /a && ./run --lr '0.1")
    assert masked_words(["python", "-c", script.replace("max(key=len)", "1")])[2] == script.replace("max(key=len)", "1")
