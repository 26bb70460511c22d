"""A store for `--slow-objects` and `benches/tails.py`: serves a folder over HTTP, with ranges, and delays one shard, or file `.dat`, in a
hundred. Usage: storage.py FOLDER SLOW_MS; prints its address once it serves."""

import functools
import http.server
import os
import re
import sys
import threading

from data import Settings, delay


class Store(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without this, the body would wait for the acknowledgement of the header, which is a separate write.
    disable_nagle_algorithm = True
    settings = Settings(cores=1)
    # What was sent: the path, and where the range of it begins and ends.
    sent: list[tuple[str, int, int]] = []

    def do_GET(self) -> None:
        path = self.translate_path(self.path)
        shard = re.search(r"(\d+)\.(?:tar|dat)$", path)
        if shard:
            delay(int(shard[1]), self.settings)
        try:
            file = open(path, "rb")
        except OSError:
            self.send_error(404)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            start = int(wanted[1]) if wanted else 0
            end = min(size, int(wanted[2]) + 1 if wanted and wanted[2] else size)
            self.sent.append((path, start, end))
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - start))
            self.send_header("Last-Modified", self.date_time_string(os.fstat(file.fileno()).st_mtime))
            self.end_headers()
            os.set_blocking(self.connection.fileno(), True)
            while start < end:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start)

    def log_message(self, *_) -> None:
        """Logs nothing for each request."""


def main(folder: str, slow_ms: str) -> None:
    Store.settings = Settings(cores=1, slow_ms=int(slow_ms))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Store, directory=folder))
    threading.Thread(target=server.serve_forever).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
