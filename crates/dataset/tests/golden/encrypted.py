"""Writes `encrypted.parquet`: pictures in an encrypted column, labels in a plain one, and a footer that everybody can read.

Run: python encrypted.py (pyarrow 26)
"""

import base64
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pyarrow.parquet.encryption as encryption


class PlainKeys(encryption.KmsClient):
    """Wraps keys as base64, which protects nothing."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


pictures = [{"bytes": bytes([row]) * 20, "path": f"{row}.jpg"} for row in range(6)]
table = pyarrow.table({"image": pictures, "label": list(range(6))})
rules = encryption.EncryptionConfiguration(
    footer_key="footer", column_keys={"pictures": ["image.bytes"]}, plaintext_footer=True
)
factory = encryption.CryptoFactory(lambda _: PlainKeys())
properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), rules)
path = Path(__file__).with_name("encrypted.parquet")
with pyarrow.parquet.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
    writer.write_table(table)
