import pathlib

import streaming

with streaming.MDSWriter(out="mds", columns={"image": "bytes", "label": "int"}) as writer:
    for label, folder in enumerate(sorted(pathlib.Path("photos").iterdir())):
        for picture in sorted(folder.iterdir()):
            writer.write({"image": picture.read_bytes(), "label": label})
