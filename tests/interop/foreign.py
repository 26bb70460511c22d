"""Reads pictures with Pillow; and writes a set of pictures of all kinds, with Pillow and a few lines of code here.

usage: foreign.py reference < PATHS: for each path, one line of JSON, {"format", "width", "height"} or {"format", "error"}, followed by
           width * height RGB pixels: turned upright as EXIF or XMP say, alpha dropped, 16 bits and floats scaled to 8
       foreign.py generate PHOTO FOLDER: writes the set; prints the names as a JSON list
"""

import array
import io
import json
import pathlib
import struct
import sys
import warnings
import zlib

from PIL import Image, ImageFile, ImageOps, PngImagePlugin

# Above twice as many pixels, about our own limit, Pillow raises an error instead of allocating the memory.
Image.MAX_IMAGE_PIXELS = 1 << 26
warnings.simplefilter("ignore")


def scaled(picture: Image.Image) -> Image.Image:
    """Converts pixels of more than 8 bits to 8-bit grey."""
    if picture.mode.startswith("I;16"):
        values = array.array("H", picture.tobytes())
        if picture.mode == "I;16B":
            values.byteswap()
        return Image.frombytes("L", picture.size, bytes((value + 128) // 257 for value in values))
    if picture.mode == "I":
        values = array.array("i", picture.tobytes())
        if not values or max(values) > 65535 or min(values) < 0:
            raise ValueError("integers of 32 bits")
        return Image.frombytes("L", picture.size, bytes((value + 128) // 257 for value in values))
    if picture.mode == "F":
        values = array.array("f", picture.tobytes())
        return Image.frombytes("L", picture.size, bytes(round(min(max(value, 0.0), 1.0) * 255) for value in values))
    return picture


def upright(path: str) -> tuple[str, Image.Image]:
    with Image.open(path) as picture:
        kind = picture.format
        try:
            picture.load()
            orientation = picture.getexif().get(0x0112, 1)
        except (SyntaxError, ValueError, struct.error, OSError, TypeError, EOFError):
            picture.load()
            orientation = 1
        if orientation in range(2, 9):
            picture = ImageOps.exif_transpose(picture)
        return kind, scaled(picture).convert("RGB")


def reference() -> None:
    for line in sys.stdin:
        out = sys.stdout.buffer
        path = line.rstrip("\n")
        try:
            kind, picture = upright(path)
        except Exception as error:  # any error of Pillow
            out.write(json.dumps({"format": None, "error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
        else:
            out.write(json.dumps({"format": kind, "width": picture.width, "height": picture.height}).encode() + b"\n")
            out.write(picture.tobytes())
        out.flush()


def jpegs(photo: Image.Image, save) -> None:
    for subsampling in ("4:4:4", "4:2:2", "4:2:0", "4:1:1"):
        for progressive in (False, True):
            name = f"jpeg-{subsampling.replace(':', '')}-{'progressive' if progressive else 'baseline'}.jpg"
            save(name, photo, quality=90, subsampling=subsampling, progressive=progressive)
    save("jpeg-grey.jpg", photo.convert("L"), quality=90)
    save("jpeg-cmyk.jpg", photo.convert("CMYK"), quality=90)
    save("jpeg-rgb.jpg", photo, quality=90, keep_rgb=True)
    save("jpeg-restarts.jpg", photo, quality=90, restart_marker_blocks=3)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind in ("jpg", "png", "webp", "tif"):
            options = {"quality": 90} if kind == "jpg" else {"lossless": True} if kind == "webp" else {}
            save(f"{kind}-orientation-{orientation}.{kind}", photo, exif=exif, **options)


def segments(jpeg: bytes) -> tuple[list[bytes], bytes]:
    """Returns the segments before the first scan, and the rest."""
    at, found = 2, []
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        found.append(jpeg[at:end])
        at = end
    return found, jpeg[at:]


def odd_jpegs(folder: pathlib.Path) -> None:
    exif = b"\xff\xe1" + struct.pack(">H", 2 + 6 + 26) + b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    for kind in ("420-baseline", "420-progressive"):
        whole = (folder / f"jpeg-{kind}.jpg").read_bytes()
        before, scan = segments(whole)
        adobe = lambda transform: b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform])
        without_jfif = [one for one in before if one[1] != 0xE0]
        join = lambda parts, rest=scan: b"\xff\xd8" + b"".join(parts) + rest
        changed = {
            "junk-before-scan": join(before + [b"junk\0\1"]),
            "junk-everywhere": join([part for one in before for part in (one, b"\x20\x0a")]),
            "stuffed-zero": join(before[:1] + [b"\xff\x00\x11"] + before[1:]),
            "fill-bytes": join([b"\xff\xff\xff" + one for one in before]),
            "app13-too-short": join(before[:1] + [b"\xff\xed\0\x10Photoshop 3.0\0" + b"8BIM\x04\x04" * 3] + before[1:]),
            "adobe-ycc": join([adobe(1)] + without_jfif),
            "jfif-and-adobe-rgb": join(before[:1] + [adobe(0)] + before[1:]),
            "adobe-unknown": join([adobe(9)] + without_jfif),
            "exif-broken": join(before[:1] + [b"\xff\xe1\0\x12Exif\0\0not a TIFF"] + before[1:]),
            "exif-cut": join(before[:1] + [b"\xff\xe1\0\x14" + exif[4:22]] + before[1:]),
            "short-segment": join(before[:1] + [b"\xff\xe5\0\0"] + before[1:]),
            "behind-the-end": whole + b"\0\0more\xff\xd8\xff",
        }
        for name, jpeg in changed.items():
            (folder / f"odd-{name}-{kind}.jpg").write_bytes(jpeg)
    before, scan = segments((folder / "jpeg-420-baseline.jpg").read_bytes())
    # Pillow cannot read a picture that ends right after its last bits, because libjpeg reads ahead.
    (folder / "odd-no-end-420-baseline.jpg").write_bytes(b"\xff\xd8" + b"".join(before) + scan[:-2] + b"\0" * 64)
    cmyk = (folder / "jpeg-cmyk.jpg").read_bytes()
    (folder / "odd-no-end-cmyk.jpg").write_bytes(cmyk[:-2] + b"\0" * 64)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pngs(photo: Image.Image, save, folder: pathlib.Path) -> None:
    alpha = photo.convert("L").point(lambda value: 255 - value // 2)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        picture = photo.convert("L").convert("I;16") if mode == "I;16" else photo.convert(mode)
        if mode in ("LA", "RGBA"):
            picture.putalpha(alpha)
        save(f"png-{mode.replace(';', '')}.png", picture)
    save("png-transparent.png", photo.convert("P"), transparency=3)
    tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    digits = (b"Exif\0\0" + tiff).hex()
    text = f"\nexif\n{len(digits) // 2:8}\n" + "\n".join(digits[at : at + 72] for at in range(0, len(digits), 72)) + "\n"
    for deflated in (False, True):
        info = PngImagePlugin.PngInfo()
        info.add_text("Raw profile type exif", text, zip=deflated)
        save(f"png-profile-{'z' if deflated else 't'}.png", photo, pnginfo=info)
    for name, packet in (("attribute", '<r tiff:Orientation="8"/>'), ("element", "<tiff:Orientation>3</tiff:Orientation>")):
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", f"<x:xmpmeta>{packet}</x:xmpmeta>")
        save(f"png-xmp-{name}.png", photo, pnginfo=info)
    plain = (folder / "png-RGB.png").read_bytes()
    (folder / "png-exif-behind.png").write_bytes(plain[:-12] + png_chunk(b"eXIf", tiff) + plain[-12:])
    wide = bytes(value for pixel in photo.convert("RGB").tobytes() for value in (pixel, 255 - pixel))
    rows = b"".join(b"\0" + wide[at : at + photo.width * 6] for at in range(0, len(wide), photo.width * 6))
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", photo.width, photo.height, 16, 2, 0, 0, 0))
    body = png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    (folder / "png-rgb16.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + body)


def rle_bmp(photo: Image.Image, bits: int) -> bytes:
    """Makes a run-length encoded BMP with an absolute run, a jump and a short line."""
    picture = photo.convert("L").quantize(16 if bits == 4 else 256)
    palette = (picture.getpalette() or []) + [0] * 768
    colours = 1 << bits
    table = b"".join(bytes([palette[3 * at + 2], palette[3 * at + 1], palette[3 * at], 0]) for at in range(colours))
    body = b""
    for y in reversed(range(picture.height)):
        row = [picture.getpixel((x, y)) for x in range(picture.width)]
        if y % 7 == 3:
            body += bytes([0, 2, 5, 0])  # five pixels that are not written
            row = row[5:]
        if y % 5 == 2:
            row = row[:-9]
        if bits == 8 and y % 3 == 0:
            body += bytes([0, 7, *row[:7], 0])
            row = row[7:]
        elif bits == 4 and y % 3 == 0:
            body += bytes([0, 7, row[0] << 4 | row[1], row[2] << 4 | row[3], row[4] << 4 | row[5], row[6] << 4])
            row = row[7:]
        at = 0
        while at < len(row):
            end = at
            while end < len(row) and row[end] == row[at] and end - at < 255:
                end += 1
            body += bytes([end - at, row[at] * 17 if bits == 4 else row[at]])
            at = end
        body += b"\0\0"
    body += b"\0\1"
    start = 14 + 40 + len(table)
    info = struct.pack("<IiiHHIIiiII", 40, picture.width, picture.height, 1, bits, 1 if bits == 8 else 2, len(body), 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", start + len(body), 0, 0, start) + info + table + body


def others(photo: Image.Image, save, folder: pathlib.Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save("webp-lossy.webp", photo, quality=90)
    save("webp-lossless.webp", photo, lossless=True)
    save("webp-alpha.webp", photo.convert("RGBA"), lossless=True)
    save("webp-exif-prefixed.webp", photo, lossless=True, exif=b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0"))
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        save(f"bmp-{mode}.bmp", photo.convert(mode))
    for bits in (4, 8):
        (folder / f"bmp-rle{bits}.bmp").write_bytes(rle_bmp(photo, bits))
    save("gif-P.gif", photo.convert("P"))
    save("gif-L.gif", photo.convert("L"), interlace=1)
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "F"):
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            picture = photo.convert("L").convert("I;16") if mode == "I;16" else photo.convert(mode)
            if mode == "F":
                picture = picture.point(lambda value: value * (1 / 255))
            save(f"tiff-{mode.replace(';', '')}-{compression}.tif", picture, compression=compression)
    save("tiff-jpeg.tif", photo, compression="jpeg", quality=90)
    save("tiff-group4.tif", photo.convert("1"), compression="group4")
    (folder / "tiff-planar16.tif").write_bytes(planar_tiff(photo, 16))
    (folder / "tiff-planar8.tif").write_bytes(planar_tiff(photo, 8))
    for bits in (1, 2, 4, 8):
        for interpretation in (0, 1, 3):
            (folder / f"tiff-{interpretation}-{bits}.tif").write_bytes(indexed_tiff(photo, bits, interpretation))
    save("tiff-LA.tif", photo.convert("LA"))
    for at in range(8):
        (folder / f"gif-canvas-{at}.gif").write_bytes(gif_on_canvas(photo, at))
    for mode, suffix in (("1", "pbm"), ("L", "pgm"), ("RGB", "ppm")):
        save(f"pnm-{mode}.{suffix}", photo.convert(mode))


def indexed_tiff(photo: Image.Image, bits: int, interpretation: int) -> bytes:
    """Makes a TIFF of few bits, grey (0 is white or black) or with a palette, in strips of 16 rows; big-endian with 4 bits."""
    order = ">" if bits == 4 else "<"
    picture = photo.convert("L")
    pack = lambda row: bytes(
        sum((value >> (8 - bits)) << (8 - bits - at * bits) for at, value in enumerate(row[start : start + 8 // bits]))
        for start in range(0, len(row), 8 // bits)
    )
    rows = [pack(picture.crop((0, y, picture.width, y + 1)).tobytes()) for y in range(picture.height)]
    strips = [b"".join(rows[at : at + 16]) for at in range(0, len(rows), 16)]
    data = b"".join(strips)
    offsets = [8 + sum(map(len, strips[:at])) for at in range(len(strips))]
    colours = [[(7919 * (channel + 1) * at) % 65536 for at in range(1 << bits)] for channel in range(3)]
    extra = struct.pack(f"{order}{len(strips)}I", *offsets) + struct.pack(f"{order}{len(strips)}I", *map(len, strips))
    start, entries = 8 + len(data) + len(data) % 2, 10
    tail = start + 2 + 12 * entries + 4
    fields = [
        (256, 4, 1, photo.width), (257, 4, 1, photo.height), (258, 3, 1, bits), (259, 3, 1, 1), (262, 3, 1, interpretation),
        (273, 4, len(strips), tail), (277, 3, 1, 1), (278, 4, 1, 16), (279, 4, len(strips), tail + 4 * len(strips)),
        (320, 3, 3 << bits, tail + len(extra)),
    ]
    short = lambda kind, count, value: value << 16 if order == ">" and kind == 3 and count == 1 else value
    directory = struct.pack(order + "H", entries)
    directory += b"".join(struct.pack(order + "HHII", tag, kind, count, short(kind, count, value)) for tag, kind, count, value in fields)
    extra += b"".join(struct.pack(f"{order}{1 << bits}H", *channel) for channel in colours)
    magic = b"MM\0*" if order == ">" else b"II*\0"
    return magic + struct.pack(order + "I", start) + data + b"\0" * (len(data) % 2) + directory + b"\0\0\0\0" + extra


def gif_on_canvas(photo: Image.Image, at: int) -> bytes:
    """Makes a GIF whose frame covers a part of the canvas or extends beyond it; with a transparent colour or its own palette."""
    out = io.BytesIO()
    photo.convert("P").save(out, "GIF")
    gif = out.getvalue()
    table = 3 << ((gif[10] & 7) + 1)
    palette, frame = gif[13 : 13 + table], gif[gif.index(b",", 13 + table) :]
    left, top = ((0, 0), (5, 0), (0, 7), (11, 13))[at % 4]
    more = -9 if at % 4 == 3 else 20
    header = gif[:6] + struct.pack("<HH", photo.width + left + more, photo.height + top + more) + gif[10:13]
    control = b"!\xf9\x04" + bytes([1, 0, 0, 7 if at < 4 else 77]) + b"\0" if at % 2 else b""
    place = struct.pack("<HHHH", left, top, photo.width, photo.height)
    if at >= 4:  # a palette of the frame's
        place += bytes([0x80 | gif[10] & 7]) + palette[::-1]
    else:
        place += bytes([0])
    return header + palette + control + b"," + place + frame[10:]


def planar_tiff(photo: Image.Image, bits: int) -> bytes:
    """Makes an RGB TIFF with separate planes for the channels."""
    channels = [channel.tobytes() for channel in photo.convert("RGB").split()]
    if bits == 16:
        channels = [b"".join(struct.pack("<H", value * 257) for value in channel) for channel in channels]
    data = b"".join(channels)
    start = 8 + len(data)
    entries = 11
    tail = start + 2 + 12 * entries + 4
    extra = struct.pack("<HHH", bits, bits, bits)
    offsets, counts = tail + 6, tail + 18
    extra += struct.pack("<III", *(8 + at * len(channels[0]) for at in range(3))) + struct.pack("<III", *([len(channels[0])] * 3))
    fields = [
        (256, 4, 1, photo.width), (257, 4, 1, photo.height), (258, 3, 3, tail), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 3, offsets),
        (277, 3, 1, 3), (278, 4, 1, photo.height), (279, 4, 3, counts), (284, 3, 1, 2), (339, 3, 1, 1),
    ]
    directory = struct.pack("<H", entries) + b"".join(struct.pack("<HHII", *field) for field in fields) + b"\0\0\0\0"
    return b"II*\0" + struct.pack("<I", start) + data + directory + extra


def generate(photo: str, folder: str) -> None:
    at = pathlib.Path(folder)
    with Image.open(photo) as picture:
        small = picture.convert("RGB").resize((97, 71))
    save = lambda name, picture, **options: picture.save(at / name, **options)
    jpegs(small, save)
    odd_jpegs(at)
    pngs(small, save, at)
    others(small, save, at)
    print(json.dumps(sorted(path.name for path in at.iterdir())))


ImageFile.LOAD_TRUNCATED_IMAGES = False
if sys.argv[1:] == ["reference"]:
    reference()
elif len(sys.argv) == 4 and sys.argv[1] == "generate":
    generate(*sys.argv[2:])
else:
    sys.exit(__doc__)
