"""Who may use the web view, and from where."""

from __future__ import annotations

import asyncio
import stat
import tomllib
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from test_web_api import in_view
from web_view import SECRET, viewing

from toolspeak import MemoryJournal
from toolspeak.cli.main import cli
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import digest
from toolspeak.testing.journal import a_run, every_kind, write
from toolspeak.web_ui.access import Access, UiKey, read_ui_keys
from toolspeak.web_ui.api_operations import OPERATIONS, ROOT
from toolspeak.web_ui.web_app import MOST_STREAMS
from toolspeak.web_ui.web_server import UiSettings, open_listener, serve_ui

LOOK, APPROVE, RUN = ("l" * 20, "a" * 20, "r" * 20)
KEYS = (
    UiKey("lea", digest(LOOK)),
    UiKey("abe", digest(APPROVE), ("approve",)),
    UiKey("rose", digest(RUN), ("approve", "run")),
)


def test_nobody_reads_anything_without_a_cookie_or_a_key():
    async def main(view, journal):
        await write(journal, a_run("x", *every_kind()))
        view.client.cookies.clear()
        for one in OPERATIONS:
            path = ROOT + one.path.format(run_id="x", seq=0, session_id="s")
            response = await view.client.request(one.method, path, json={} if one.body else None)
            assert response.status_code == (400 if one.role is None else 401), (one.name, response.text)
        for path in ("/", "/runs/x", "/sessions", "/static/app.js"):
            assert (await view.client.get(path)).status_code == 200, "the program itself is no secret"

    in_view(main)


def test_the_token_counts_once_and_the_next_one_is_said():
    tokens = []

    async def main(view, _):
        assert tokens == [view.access.token]
        await view.post("/session", 401, secret="wrong")
        await view.post("/session", secret=tokens[0])
        await view.post("/session", 401, secret=tokens[0])
        assert (await view.get("/session"))["roles"] == ["look", "approve", "run"]

    in_view(main, on_token=tokens.append)


def test_a_cookie_is_strict_and_holds_over_a_restart_until_it_is_old():
    now = 1_000_000.0
    first = Access(keys=None, user="ann", secret=SECRET, clock=lambda: now)
    cookie = {first.cookie_name: first.login(first.token, "1")}
    assert first.caller({}, cookie).name == "ann"
    for options in ({"secret": b"o" * 32}, {"user": "bob"}, {"clock": lambda: now + 8 * 86_400}):
        other = Access(**{"keys": None, "user": "ann", "secret": SECRET, "clock": lambda: now, **options})
        with pytest.raises(Exception, match="log in"):
            other.caller({}, cookie)
    again = Access(keys=None, user="ann", secret=SECRET, clock=lambda: now)
    assert again.caller({}, cookie) == first.caller({}, cookie)

    async def main(view, _):
        response = await view.client.post(f"{ROOT}/session", json={"secret": view.access.token})
        attributes = response.headers["set-cookie"].lower()
        assert "httponly" in attributes
        assert "samesite=strict" in attributes
        view.client.headers["x-csrf-token"] = response.json()["csrf"]
        assert (await view.client.delete(f"{ROOT}/session")).status_code == 204

    in_view(main)


def test_a_key_ends_with_its_cookie_when_it_is_replaced_or_over():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    keys = (UiKey("abe", digest(APPROVE), ("approve",), now + timedelta(days=1)),)
    access = Access(keys=keys, user="", secret=SECRET, clock=now.timestamp)
    cookie = {access.cookie_name: access.login(APPROVE, "1")}
    assert access.caller({}, cookie).roles == {"look", "approve"}
    later = Access(keys=keys, user="", secret=SECRET, clock=(now + timedelta(days=2)).timestamp)
    access_with_new_key = Access(keys=(UiKey("abe", digest(RUN)),), user="", secret=SECRET, clock=now.timestamp)
    for other in (later, access_with_new_key):
        with pytest.raises(Exception, match="log in"):
            other.caller({}, cookie)
    with pytest.raises(Exception, match="has expired"):
        later.login(APPROVE, "1")


@pytest.mark.parametrize(
    ("key", "roles"), [(LOOK, {"look"}), (APPROVE, {"look", "approve"}), (RUN, {"look", "approve", "run"})]
)
def test_a_role_is_needed_for_what_changes_a_run(key, roles):
    async def main(view, journal):
        await write(journal, a_run("x", *every_kind()))
        view.client.headers["authorization"] = f"Bearer {key}"
        for one in OPERATIONS:
            if one.role is not None and one.name not in ("logout", "events"):
                path = ROOT + one.path.format(run_id="x", seq=0, session_id="s")
                response = await view.client.request(one.method, path, json={} if one.body else None)
                assert (response.status_code == 403) == (one.role not in roles), (one.name, response.text)

    in_view(main, keys=KEYS, login="")


def test_pages_of_other_origins_and_names_are_refused():
    async def main(view, journal):
        await write(journal, a_run("x"))
        own = f"http://127.0.0.1:{view.port}"
        path = f"{ROOT}/runs/x/suspension"
        csrf = view.client.headers["x-csrf-token"]

        async def status(**headers):
            headers_sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await view.client.post(path, headers=headers_sent)).status_code

        assert await status(origin="https://evil.example", x_csrf_token=csrf) == 403
        assert await status(origin="null", x_csrf_token=csrf) == 403
        assert await status(sec_fetch_site="cross-site", x_csrf_token=csrf) == 403
        assert await status(origin=own, x_csrf_token="") == 403
        assert await status(origin=own, x_csrf_token="0" * 64) == 403
        for host in ("evil.example", f"evil.example:{view.port}", "127.0.0.1.evil.example", ""):
            assert (await view.client.get("/", headers={"host": host})).status_code == 403
        for host in ("localhost", f"127.0.0.1:{view.port}", "[::1]:1"):
            assert (await view.client.get("/", headers={"host": host})).status_code == 200
        assert await status(origin=own, x_csrf_token=csrf) == 200
        login = {"secret": view.access.token}
        evil = await view.client.post(f"{ROOT}/session", json=login, headers={"origin": "https://evil.example"})
        assert evil.status_code == 403

    in_view(main)


def test_every_answer_has_the_headers_that_hold_a_browser_back():
    async def main(view, _):
        for path in ("/", "/static/app.js", f"{ROOT}/runs", f"{ROOT}/nothing", f"{ROOT}/runs/x"):
            headers = (await view.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "access-control-allow-origin" not in headers

    in_view(main)


def test_requests_are_bounded_in_size_and_number():
    async def main(view, journal):
        await write(journal, a_run("x"))
        large = await view.client.post(f"{ROOT}/runs/x/messages", json={"text": "x" * 3_000_000})
        assert large.status_code == 413
        for body, kind in (
            ("{", "application/json"),
            ("text=x", "application/x-www-form-urlencoded"),
            ("[]", "application/json"),
        ):
            answer = await view.client.post(f"{ROOT}/runs/x/messages", content=body, headers={"content-type": kind})
            assert answer.status_code in (400, 415)
        await view.post("/runs/x/messages", 400, text="hello", odd=1)
        statuses = [(await view.client.post(f"{ROOT}/runs/x/suspension")).status_code for _ in range(90)]
        assert 429 in statuses
        assert set(statuses) <= {200, 409, 429}
        logins = [(await view.client.post(f"{ROOT}/session", json={"secret": "x"})).status_code for _ in range(15)]
        assert logins[0] == 401
        assert logins[-1] == 429

    in_view(main, clock=lambda: 1e9)  # a slow machine would send slowly enough


def test_a_caller_has_a_bounded_number_of_streams():
    async def main(view, journal):
        await write(journal, a_run("x"))
        path = f"{ROOT}/runs/x/events"
        async with AsyncExitStack() as streams:
            for _ in range(MOST_STREAMS):
                response = await streams.enter_async_context(view.client.stream("GET", path))
                assert response.status_code == 200
            assert (await view.client.get(path)).status_code == 429
        async with asyncio.timeout(60):
            while True:  # once the server has noticed that a client left
                async with view.client.stream("GET", path) as response:
                    if response.status_code == 200:
                        break
                    await response.aread()

    in_view(main)


def test_a_file_of_keys_is_made_by_the_command_and_read(tmp_path):
    file = tmp_path / "keys.toml"
    result = CliRunner().invoke(cli, ["keys", "new", "abe", "--role", "approve"])
    file.write_text(result.stdout)
    (key,) = read_ui_keys(file)
    assert (key.name, key.roles) == ("abe", ("approve",))
    assert digest(result.stderr.rsplit(": ", 1)[1].strip()) == key.sha256
    assert tomllib.loads(result.stdout)["key"][0]["roles"] == ["approve"]
    for text, problem in (
        ("", "key"),
        ("key = []", "holds no key"),
        ("[[key]]\nname = 'a'\nsha256 = 'x'", "sha256"),
        (result.stdout * 2, "two keys have the same name"),
        (result.stdout + "\nroles", "cannot be read"),
        (result.stdout.replace('["approve"]', '["admin"]'), "roles"),
        (result.stdout + "expires = 2030-01-01T00:00:00", "with its zone"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=problem):
            read_ui_keys(file)


def test_other_machines_need_keys_and_the_port_must_be_free(tmp_path):
    async def main():
        with pytest.raises(ConfigurationError, match="open to other machines: give people keys"):
            open_listener(UiSettings("0.0.0.0", 0))
        async with viewing(MemoryJournal()) as view:
            with pytest.raises(ConfigurationError, match="choose another --port"):
                open_listener(UiSettings(port=view.port))
        addresses: asyncio.Queue[str] = asyncio.Queue()
        settings = UiSettings(port=0, secret_file=tmp_path / "a" / "secret")
        serving = asyncio.ensure_future(serve_ui(MemoryJournal(), open_listener(settings), addresses.put_nowait))
        assert "/#token=" in await addresses.get()
        assert stat.S_IMODE((tmp_path / "a" / "secret").stat().st_mode) == 0o600
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(main())
