"""A hub on this machine: as much of the interface of the Hugging Face hub as models need."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories in memory, and every request that came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self._noted()
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            self.server.repos.setdefault(repo, {})
            self._answer({"url": f"{self.server.url}/{repo}"})
        elif path == "/api/validate-yaml":
            text = json.loads(body)["content"]
            bad = [{"message": "unknown license"}] if "license: no-such" in text else []
            self._answer({"errors": bad, "warnings": []}, 400 if bad else 200)
        elif path.endswith("/preupload/main"):
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                for f in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif path.endswith("/commit/main"):
            repo = path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    self.server.repos[repo][value["path"]] = base64.b64decode(value["content"])
            self._answer({"commitUrl": f"{self.server.url}/{repo}", "commitOid": COMMIT})
        else:
            self._answer({"error": "unknown"}, 404)

    def do_GET(self) -> None:
        path = self._noted()
        if path.startswith("/api/models/"):
            owner, name, what = path.removeprefix("/api/models/").split("/")[:3]
            files = self.server.repos.get(f"{owner}/{name}")
            if files is None:
                self._answer({"error": "Repository not found"}, 404, "RepoNotFound")
            elif what == "tree":
                sizes = {file: len(content) for file, content in files.items()}
                rows = [
                    {"type": "file", "path": f, "size": n, "oid": "0"} for f, n in sizes.items()
                ]
                self._answer(rows)
            else:
                named = [{"rfilename": file} for file in files]
                self._answer({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": named})
            return
        owner, name, _, _, file = path.lstrip("/").split("/", 4)
        self._send(self.server.repos[f"{owner}/{name}"][file])

    def do_HEAD(self) -> None:
        self.do_GET()

    def _noted(self) -> str:
        path = self.path.partition("?")[0]
        self.server.requests.append(path)
        self.server.tokens.add(self.headers.get("Authorization"))
        return path

    def _answer(self, value: Any, status: int = 200, error: str = "") -> None:
        self._send(json.dumps(value).encode(), status, error)

    def _send(self, content: bytes, status: int = 200, error: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def running() -> Iterator[Hub]:
    """A hub that answers until the end of the block."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
