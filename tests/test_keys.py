"""What is a key is found in any text; what only looks a little like one is left alone."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid

import pytest

from cotkit.keys import environment_secrets, is_secret_name, is_variable_name, looks_like_a_key, scrub


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Key material, made here so that no file holds anything a scanner takes for a key."""
    return "a1" + "".join(random.Random(count).choices(alphabet, k=count - 2))


KEYS = [
    "sk-" + letters(48),
    "sk-" + letters(32, string.hexdigits.lower()),
    "sk-proj-" + letters(40, string.ascii_letters + "-_"),
    "sk-ant-api03-" + letters(90),
    "sk-or-v1-" + letters(64),
    "sk-proj-********9x2A",
    "sk_live_" + letters(24),
    "csk-" + letters(40),
    "hf_" + letters(34),
    "gsk_" + letters(52),
    "r8_" + letters(37),
    "ghp_" + letters(36),
    "gho_" + letters(36),
    "github_pat_" + letters(22) + "_" + letters(50),
    "xai-" + letters(80),
    "pplx-" + letters(48),
    "nvapi-" + letters(64, string.ascii_letters + string.digits + "-_"),
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + letters(35, string.ascii_letters + string.digits + "-_"),
    "xoxb-" + "123456789012-" + letters(24),
    "glpat-" + letters(20),
    "eyJ" + letters(30) + "." + letters(60) + "." + letters(40),
    "Bearer " + letters(24),
    "-----BEGIN RSA PRIVATE KEY-----",
]
SURROUNDINGS = [
    "{}",
    "Incorrect API key provided: {}.",
    "'{}'",
    "--key={} --model x",
    "https://host/v1/{}/score",
    "a\n{}\nb",
    '{{"api_key": "{}"}}',
]
NO_KEYS = [
    "gpt-4o-mini-2024-07-18",
    "claude-3-5-sonnet-20241022",
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "nvidia/nemotron-4-340b-reward",
    "xai-org/grok-1",
    "pplx-70b-online",
    "llama-3.1-sonar-small-128k-online",
    "hf_models_local_directory/model",
    "hf_hub_download",
    "sk-learn",
    "task-2024-01-01-sorted-names",
    "risk-2024-assessment-of-models",
    "disk-0123456789abcdef",
    "/home/someone/runs/2024-01-05T10-00-00_gsm8k/report.html",
    "C:\\models\\qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "a bearer of bad news",
    "bearer authentication is required",
    "The key idea: a token is a word, its secret is the password of meaning.",
    "password=",
    "OPENAI_API_KEY",
    "https://api.deepseek.com/v1",
    "http://127.0.0.1:8000/v1/score",
    "http://[::1]:8000/v1",
    "https://host/search?q=how+to+keep+a+secret&page=2",
    "mailto:someone@example.org",
    "git@github.com:owner/name.git",
    "time 12:30@home",
    str(uuid.UUID(int=random.Random(1).getrandbits(128))),
    hashlib.sha256(b"x").hexdigest(),
    hashlib.md5(b"x").hexdigest(),
    "sha256:" + hashlib.sha256(b"y").hexdigest(),
    r"\frac{sk - 1}{2}",
    "x = sk-1, y = rk-2",
    "",
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:10])
@pytest.mark.parametrize("around", SURROUNDINGS)
def test_a_key_is_found_and_taken_out_wherever_it_stands(key, around):
    text = around.format(key)
    assert looks_like_a_key(text)
    assert key not in scrub(text) and not looks_like_a_key(scrub(text))
    if not key.startswith("Bearer"):  # its characters go on through / and .
        assert scrub(text).replace("[key]", key) == text


@pytest.mark.parametrize("text", NO_KEYS)
def test_what_is_no_key_is_left_alone(text):
    assert not looks_like_a_key(text)
    assert scrub(text) == text


def test_base64_and_random_words_are_no_keys():
    generator = random.Random(0)
    assert not looks_like_a_key(base64.b64encode(generator.randbytes(1_000_000)).decode())
    words = " ".join("".join(generator.choices(string.ascii_lowercase, k=7)) for _ in range(20_000))
    assert not looks_like_a_key(words)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://bob:hunter2@host/score", "https://[key]@host/score"),
        ("http://u:p@127.0.0.1:8000/v1", "http://[key]@127.0.0.1:8000/v1"),
        ("https://host/v1?api_key=abcdefgh&x=1", "https://host/v1?[key]&x=1"),
        ("https://host/v1?x=1&API-KEY=abcdefgh", "https://host/v1?x=1&[key]"),
    ],
)
def test_a_password_or_key_in_an_address_is_taken_out(url, shown):
    assert looks_like_a_key(url) and scrub(url) == shown


def test_given_secrets_are_taken_out_and_an_empty_one_does_nothing():
    assert scrub("bad key topsecret, topsecret", ["topsecret", ""]) == "bad key [key], [key]"


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "MY_KEY_2",
        "key",
        "hf_token",
        "GCP_PROJECT_NUMBER_123456",
        "_x",
        "SK_TEST",
        "r8_token",
    ],
)
def test_a_variables_name_is_told_from_a_key(name):
    assert is_variable_name(name)


@pytest.mark.parametrize(
    "text",
    [
        *(key for key in KEYS if "*" not in key),
        "sk-proj-abcdef",
        "sk_live_a1b2c3",
        "hf_AbCdEfGhIjKl",
        "gsk_a1b2c3d4e5f6",
        "AIzaSyA1234567890abcdefghij",
        "AKIAABCDEFGH12345678",
        "0123456789abcdef0123456789abcdef",
        "a key with spaces",
        "",
    ],
)
def test_a_key_is_no_variables_name(text):
    assert not is_variable_name(text)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("OPENAI_API_KEY", True),
        ("apiKey", True),
        ("openaiapikey", True),
        ("x-api-key", True),
        ("HF_TOKEN", True),
        ("token", True),
        ("client_secret", True),
        ("password", True),
        ("DB_CREDENTIALS", True),
        ("Authorization", True),
        ("max_tokens", False),
        ("api_key_env", False),
        ("tokenizer", False),
        ("monkey", False),
        ("keyword", False),
        ("secretary", False),
        ("model", False),
    ],
)
def test_the_names_secrets_are_kept_under_are_known(name, secret):
    assert is_secret_name(name) is secret


def test_secrets_of_the_environment_are_found_by_name_the_longest_first(monkeypatch):
    for name, value in {
        "ONE_TOKEN": "hunter22",
        "TWO_KEY": "hunter22-hunter22",
        "SHORT_KEY": "abc",
        "SIZE_KEY": "123456789",
        "ONE_NAME": "hunter-by-name",
    }.items():
        monkeypatch.setenv(name, value)
    found = environment_secrets()
    assert found["hunter22"] == "ONE_TOKEN"
    assert list(found).index("hunter22-hunter22") < list(found).index("hunter22")
    assert not {"abc", "123456789", "hunter-by-name"} & set(found)
