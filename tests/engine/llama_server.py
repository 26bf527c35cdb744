"""llama.cpp's server, from the package `xllamacpp`. It has the server in its extension; registries have no program.

    python llama_server.py MODEL PORT

Serves the model as "tiny" on loopback, with its chat template and two slots, until it is killed.
"""

from __future__ import annotations

import sys
import threading

import xllamacpp


def main() -> None:
    _, model, port = sys.argv
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = model, ["tiny"]
    params.hostnames, params.port = ["127.0.0.1"], int(port)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 65536, 2, 1
    params.use_jinja, params.endpoint_slots, params.offline = True, True, True
    server = xllamacpp.Server(params)
    print("listening at", server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
