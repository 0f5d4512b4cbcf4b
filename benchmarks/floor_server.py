"""Serve empty answers with the broker's HTTP libraries: `python -m benchmarks.floor_server`.

`/answer?bytes=N` reads the body of the request and answers with N zero bytes. The program prints its port.
"""

import functools
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


@functools.lru_cache
def _octets(size: int) -> bytes:
    return bytes(size)


async def _answer(request: Request) -> Response:
    async for _ in request.stream():
        pass
    size = int(request.query_params["bytes"])
    return Response(_octets(size), media_type="application/octet-stream")


def main() -> None:
    app = Starlette(routes=[Route("/answer", _answer, methods=["GET", "PUT", "POST"])])
    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(bound.getsockname()[1], flush=True)
    configuration = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
    uvicorn.Server(configuration).run(sockets=[bound])


if __name__ == "__main__":
    main()
