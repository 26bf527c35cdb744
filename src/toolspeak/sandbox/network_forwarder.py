"""Runs inside of a sandbox: passes connections to a port of the sandbox's own loopback on to the proxy's socket.

A program, started as `python -I -S network_forwarder.py SOCKET COMMAND…`. It listens, and becomes the command; its
child passes the connections on.
"""

import os
import signal
import socket
import sys
import threading

PORT = 3128
_ADDRESS = f"127.0.0.1:{PORT}"
_NAMES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
PROXY_VARIABLES = {
    **dict.fromkeys(_NAMES, f"http://{_ADDRESS}"),
    **dict.fromkeys(("all_proxy", "ALL_PROXY"), f"socks5h://{_ADDRESS}"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
}
"""The environment variables that name the proxy to the programs inside."""


def main(path: str, command: list[str]) -> None:
    listener = socket.create_server(("127.0.0.1", PORT), backlog=64)
    if os.fork():
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error.strerror}\n")
            os._exit(127)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with the sandbox: what cleans up may still need it
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_serve, args=(client, path), daemon=True).start()


def _serve(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as proxy:
        try:
            proxy.connect(path)
        except OSError:
            return
        back = threading.Thread(target=_copy, args=(proxy, client), daemon=True)
        back.start()
        _copy(client, proxy)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
