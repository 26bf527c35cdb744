"""How a streamed answer leaves: together what came together, in order, and held up by a slow reader."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from loopback_server import STREAM_HEAD, Exchange, http_chunks, serve
from serving import at, run_gateway, texts

from toolspeak.data.messages import Message
from toolspeak.gateway.http.asgi import MOST_WAITING, ClientGone, EventStream, run_while_connected
from toolspeak.gateway.server import Application, server_config
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT
from uvicorn_here import serving


class Reader:
    """A server that takes what it is sent while `open` is set."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.more = True
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, message: Any) -> None:
        await self.open.wait()
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])
            self.more = message["more_body"]


def test_what_was_written_leaves_together_in_the_next_turn_of_the_event_loop():
    async def run() -> None:
        reader = Reader()
        stream = EventStream(reader, [])
        for piece in (b"a", b"b"):
            await stream.write(piece)
        assert not reader.bodies
        await asyncio.sleep(0)
        assert reader.bodies == [b"ab"]
        await stream.write(b"c")
        await stream.write(b"d")
        await asyncio.sleep(0)
        assert reader.bodies == [b"ab", b"cd"]
        await stream.write(b"e")
        await stream.end()
        assert (reader.bodies, reader.more, stream.chunks) == ([b"ab", b"cd", b"e"], False, 5)


def test_an_answer_that_says_nothing_has_a_head_and_an_end():
    async def run() -> None:
        reader = Reader()
        await EventStream(reader, []).end()
        assert (reader.bodies, reader.more) == ([b""], False)

    asyncio.run(run())


def test_nothing_leaves_a_stream_that_was_closed():
    async def run() -> None:
        reader = Reader()
        stream = EventStream(reader, [])
        await stream.write(b"a")
        stream.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not reader.bodies

    asyncio.run(run())


def test_no_piece_waits_for_the_client_to_acknowledge_the_one_before():
    async def run() -> bool:
        config = server_config(Application(Settings((Upstream(url="http://127.0.0.1:9/v1"),)), owns_process=False))
        async with serving(config, protocol=0) as (server, port):  # as sockets are that name none
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"\r\n")
            (connection,) = server.server_state.connections
            writer.close()
            accepted_socket = connection.transport.get_extra_info("socket")
            return bool(accepted_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    assert asyncio.run(run())


def test_a_slow_reader_holds_its_writer_up_and_gets_all_in_order():
    pieces = [b"%06d" % number * 100 for number in range(1_000)]

    async def run() -> None:
        reader = Reader()
        stream = EventStream(reader, [])
        write_count = 0

        async def write() -> None:
            nonlocal write_count
            for piece in pieces:
                await stream.write(piece)
                await asyncio.sleep(0)
                write_count += 1
            await stream.end()

        reader.open.clear()
        writing = asyncio.create_task(write())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not reader.bodies
        assert write_count * len(pieces[0]) <= 2 * MOST_WAITING
        for _ in range(2_000):  # now and then it takes something
            reader.open.set()
            await asyncio.sleep(0)
            reader.open.clear()
            await asyncio.sleep(0)
        reader.open.set()
        await writing
        assert b"".join(reader.bodies) == b"".join(pieces)
        assert not reader.more

    asyncio.run(run())


def test_what_waits_leaves_as_soon_as_the_reader_goes_on_though_nothing_is_written():
    async def run() -> None:
        reader = Reader()
        stream = EventStream(reader, [])
        reader.open.clear()
        await stream.write(b"a")
        await asyncio.sleep(0)
        await stream.write(b"b")
        reader.open.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert b"".join(reader.bodies) == b"ab"
        await stream.end()

    asyncio.run(run())


@pytest.mark.parametrize("late", [False, True])
def test_a_server_that_fails_is_told_to_the_writer(late: bool):
    async def run() -> None:
        open_ = asyncio.Event()

        async def send(_message: Any) -> None:
            if late:
                await open_.wait()
            raise OSError("the network is down")

        stream = EventStream(send, [])
        await stream.write(b"a")
        await asyncio.sleep(0)
        open_.set()
        for _ in range(3):
            await asyncio.sleep(0)
        for say in (stream.write(b"b"), stream.end()):
            with pytest.raises(OSError, match="network"):
                await say
        with pytest.raises(ClientGone):
            await stream.tick(0.0, 60.0)

    asyncio.run(run())


def test_a_writer_that_waits_for_room_is_told_that_there_will_be_none():
    async def run() -> None:
        open_ = asyncio.Event()

        async def send(_message: Any) -> None:
            await open_.wait()
            raise OSError("the network is down")

        stream = EventStream(send, [])
        writing = asyncio.create_task(stream.write(b"x" * (MOST_WAITING + 1)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not writing.done()
        open_.set()
        with pytest.raises(OSError, match="network"):
            await writing

    asyncio.run(run())


@pytest.mark.parametrize("leaves", [True, False], ids=["the client leaves", "the server is stopped"])
def test_work_that_nobody_waits_for_is_cancelled_and_cleans_up(leaves: bool):
    async def run() -> None:
        notes: list[str] = []
        departure = asyncio.Event()

        async def receive() -> Any:
            await departure.wait()
            return {"type": "http.disconnect"}

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # cleaning up may wait too
                notes.append("cleaned up")

        working = asyncio.create_task(run_while_connected(work(), receive, EventStream(Reader(), []), 60, 60))
        for _ in range(5):
            await asyncio.sleep(0)
        if leaves:
            departure.set()
        else:
            working.cancel()
        with pytest.raises(ClientGone if leaves else asyncio.CancelledError):
            await working
        assert notes == ["cleaned up"]

    asyncio.run(run())


def test_events_of_one_read_leave_in_one_send_and_each_read_at_once():
    frames = [*[texts(*"abcdefgh")[i] for i in range(8)], *texts()]

    async def run() -> list[bytes]:
        receipt = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await exchange.send(
                STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([b"".join(frames[:5])])
            )
            await receipt.wait()  # nothing follows before the client has all of it
            await exchange.send(http_chunks([b"".join(frames[5:])]), b"0\r\n\r\n")

        pieces: list[bytes] = []
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            body = OPENAI_CHAT.encode_request(ModelRequest([Message.user("Go.")]), model="m", stream=True)
            async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as response:
                async for piece in response.aiter_raw():
                    pieces.append(piece)
                    if b'"content": "e"' in b"".join(pieces):
                        receipt.set()
        return pieces

    pieces = asyncio.run(run())
    text = b"".join(pieces)
    assert [text.count(b'"content": "%c"' % letter) for letter in b"abcdefgh"] == [1] * 8
    assert text.endswith(b"data: [DONE]\n\n")
    assert len(pieces) < text.count(b"\n\n") // 2, "the events of a read leave together, as far as the machine is idle"


def test_a_stream_that_ends_while_its_last_piece_leaves_ends():
    async def run():
        messages, leaving, go_on = [], asyncio.Event(), asyncio.Event()

        async def send(message):
            messages.append(message)
            if message["type"] == "http.response.body" and len(messages) == 2:
                leaving.set()
                await go_on.wait()

        stream = EventStream(send, [])
        await stream.write(b"one")
        await leaving.wait()
        ending = asyncio.create_task(stream.end())
        await asyncio.sleep(0)  # the end is said while the piece is on its way
        go_on.set()
        await ending
        return messages, stream.over

    (_, piece, end), over = asyncio.run(run())
    assert over
    assert (piece["body"], piece["more_body"]) == (b"one", True)
    assert (end["body"], end["more_body"]) == (b"", False)
