"""Writes a shard as old programs did, with file names in Latin-1 and not in UTF-8.

usage: write_latin1.py FORMAT SHARD.tar

FORMAT is `ustar`, `gnu` or `pax`. Prints one JSON object: {"records": number of records}.
"""

import io
import json
import sys
import tarfile

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
KEYS = ["caf\u00e9/\u00dcbung", "plain", "\u00e9t\u00e9", "\u00f6" * 60]


def main(format: str, shard: str) -> None:
    # In pax, a name that is not UTF-8 becomes a raw record.
    encoding = "latin-1" if format != "pax" else "utf-8"
    with tarfile.open(shard, "w", format=FORMATS[format], encoding=encoding, errors="surrogateescape") as tar:
        for key in KEYS:
            if format == "pax":
                key = key.encode("latin-1").decode("utf-8", "surrogateescape")
            for field in ["jpg", "cls"]:
                data = f"{field} of {len(key)}".encode()
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    print(json.dumps({"records": len(KEYS)}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
