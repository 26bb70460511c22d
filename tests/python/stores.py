"""Stores on a loopback port that have the files of a folder: an S3 server without signatures, and the Hugging Face Hub. They do only
what reading needs."""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

#: The commit that the Hub's only branch has.
COMMIT = f"{0xC0FFEE:040x}"


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for the files of a folder."""

    protocol_version = "HTTP/1.1"
    # Without this, the body would wait for the acknowledgement of the header, which is a separate write.
    disable_nagle_algorithm = True
    folder: pathlib.Path
    name: str
    #: The files of which something was sent, with the number of bytes.
    sent: list[tuple[str, int]]
    #: How long it waits before each answer.
    latency_s: float

    def log_message(self, format: str, *arguments: object) -> None:
        """Writes no log."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Sends an answer; to a `HEAD` without its body."""
        time.sleep(self.latency_s)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_file(self, path: pathlib.Path) -> None:
        """Sends a file, or the range of it that was asked for."""
        if not path.is_file():
            return self.answer(404)
        size = path.stat().st_size
        headers = {"ETag": f'"{size:x}"', "Last-Modified": "Sat, 28 Nov 2026 12:00:00 GMT"}
        asked = self.headers.get("Range")
        if asked is None and self.command == "HEAD":
            return self.answer(200, b"", **{**headers, "Content-Length": str(size)})
        status, start, end = 200, 0, size
        if asked is not None:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            status, start = 206, int(first) if first else size - int(last)
            end = min(int(last) + 1 if first and last else size, size)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(end - start)
        self.sent.append((path.name, len(body)))
        try:
            self.answer(status, body, **headers)
        except ConnectionError:
            # It is not sent where the client has taken another answer: of an object that comes late it asks a second time.
            self.sent.remove((path.name, len(body)))
            self.close_connection = True

    def files(self) -> list[tuple[str, int]]:
        """Returns the paths of all files and their sizes."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [(path.relative_to(self.folder).as_posix(), path.stat().st_size) for path in paths]


class _Bucket(_Handler):
    def do_GET(self) -> None:  # noqa: N802
        target = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        inside = unquote(target.path).removeprefix(f"/{self.name}").strip("/")
        if "list-type" not in query:
            return self.answer_file(self.folder / inside)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        objects, folders = [], set()
        for path, size in self.files():
            if not path.startswith(prefix):
                continue
            rest = path.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                continue
            about = f"<LastModified>2026-11-28T12:00:00.000Z</LastModified><ETag>&quot;{size:x}&quot;</ETag><Size>{size}</Size>"
            objects.append(f"<Contents><Key>{escape(path)}</Key>{about}</Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(objects)}{common}</ListBucketResult>"
        self.answer(200, body.encode(), Content_Type="application/xml")

    do_HEAD = do_GET


class _Hub(_Handler):
    def do_GET(self) -> None:  # noqa: N802
        path = unquote(urlsplit(self.path).path)
        about, files = f"/api/datasets/{self.name}", f"/datasets/{self.name}/resolve/"
        if path == f"{about}/revision/main":
            return self.answer(200, json.dumps({"sha": COMMIT, "id": self.name}).encode())
        if path.startswith(f"{about}/tree/{COMMIT}"):
            folder = path.removeprefix(f"{about}/tree/{COMMIT}").strip("/")
            inside = [(name, size) for name, size in self.files() if name.startswith(folder)]
            listed = [{"type": "file", "oid": f"{size:040x}", "size": size, "path": name} for name, size in inside]
            return self.answer(200, json.dumps(listed).encode())
        if path.startswith(files):
            _, _, file = path.removeprefix(files).partition("/")
            if not (self.folder / file).is_file():
                return self.answer(404, X_Error_Code="EntryNotFound")
            return self.answer(302, Location=f"http://{self.headers['Host']}/behind/{file}")
        if path.startswith("/behind/"):
            return self.answer_file(self.folder / path.removeprefix("/behind/"))
        self.answer(401, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET


@contextlib.contextmanager
def _serve(
    kind: type[_Handler], name: str, folder: pathlib.Path, sent: list[tuple[str, int]] | None = None, latency_s: float = 0
) -> Iterator[str]:
    of_store = {"folder": folder, "name": name, "sent": [] if sent is None else sent, "latency_s": latency_s}
    handler = type(kind.__name__, (kind,), of_store)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.contextmanager
def bucket(name: str, folder: pathlib.Path, sent: list[tuple[str, int]] | None = None, latency_s: float = 0) -> Iterator[dict[str, str]]:
    """Serves a folder as a public bucket, and returns the variables that lead a process to it. The files and bytes that are sent are
    added to a list; each answer comes so many seconds late."""
    with _serve(_Bucket, name, folder, sent, latency_s) as endpoint:
        yield {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_SKIP_SIGNATURE": "true"}


@contextlib.contextmanager
def hub(name: str, folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Serves a folder as a repository of the Hub, and returns the variables that lead a process to it and hide the user's token."""
    with _serve(_Hub, name, folder) as endpoint:
        yield {"HF_ENDPOINT": endpoint, "HF_HOME": "/nowhere", "HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": ""}
