"""What is taken for a secret, and what is written in its place."""

from __future__ import annotations

import pytest

from tare.base import secrets
from tare.base.secrets import mask, masked_env, masked_words
from tare_inside import fingerprint


def test_both_sides_go_by_the_same_names():
    assert (secrets.NAMES.pattern, secrets.NAMES.flags) == (fingerprint._SECRET.pattern, fingerprint._SECRET.flags)


def test_a_mask_tells_secrets_apart_and_stands_for_itself():
    assert mask("a") != mask("b")
    assert mask(mask("a")) == mask("a")
    assert mask("\udcff").startswith("sha256:")  # a byte that is no text


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
