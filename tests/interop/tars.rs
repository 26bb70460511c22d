//! Reads tars that are compressed as a whole, by the programs that do it, and members that are compressed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use spdl_cli::pictures::write_image_folder;
use spdl_testkit::{
    processes::{ctl, run},
    python::python,
};

use super::trained::trains_end_to_end;

const SAMPLES: u64 = 40;

/// Packs pictures into tars with members that are compressed, and compresses the tars.
fn written(folder: &Path) -> PathBuf {
    let python = python();
    let (pictures, dataset) = (folder.join("pictures"), folder.join("dataset"));
    write_image_folder(&pictures, SAMPLES, 5, |_| {}).unwrap();
    let script = "import gzip, io, pathlib, sys, tarfile, zstd\n\
        pictures, out = map(pathlib.Path, sys.argv[1:])\n\
        out.mkdir()\n\
        paths = sorted(pictures.rglob('*.jpg'))\n\
        for shard in range(3):\n\
        \x20   file = io.BytesIO()\n\
        \x20   with tarfile.open(fileobj=file, mode='w') as tar:\n\
        \x20       for number, path in list(enumerate(paths))[shard::3]:\n\
        \x20           for name, data in [('jpg', path.read_bytes()), ('cls', b'%d' % number),\n\
        \x20                              ('json.gz', gzip.compress(b'{\"a\": %d}' % number))]:\n\
        \x20               member = tarfile.TarInfo(f'{number:04}.{name}')\n\
        \x20               member.size = len(data)\n\
        \x20               tar.addfile(member, io.BytesIO(data))\n\
        \x20   plain = file.getvalue()\n\
        \x20   suffix, data = [('', plain), ('.gz', gzip.compress(plain)), ('.zst', zstd.compress(plain))][shard]\n\
        \x20   (out / f'{shard}.tar{suffix}').write_bytes(data)\n";
    let made = Command::new(python).args(["-c", script]).arg(&pictures).arg(&dataset).status().unwrap();
    assert!(made.success());
    dataset
}

const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = { size = 32 } }]\n\
    [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
    [[column]]\nname = \"a\"\nfrom = \"json.gz\"\ndecode = \"json\"\npath = \"a\"\ndtype = \"i64\"\n";

#[tokio::test]
async fn tars_with_and_without_compression_are_one_dataset_that_trains_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = written(folder.path());
    let report = run(ctl().arg("index").arg(&dataset).args(["--json", "--block-size", "64KiB"])).json();
    assert_eq!((&report["samples"], &report["shards"]), (&SAMPLES.into(), &3.into()));
    let verified = run(ctl().arg("verify").arg(&dataset).args(["--json", "--decode"])).json();
    assert_eq!((&verified["decoded_pictures"], verified["faults"].as_array().unwrap().len()), (&SAMPLES.into(), 0));
    let unpacked = folder.path().join("unpacked");
    run(ctl().arg("unpack").arg(&dataset).arg(&unpacked).arg("--json")).json();
    assert!(fs::read(unpacked.join("0001.json.gz")).unwrap().starts_with(b"\x1f\x8b"), "members stay as they are");
    trains_end_to_end(&dataset, SAMPLES, COLUMNS).await;
}

#[test]
fn names_and_bytes_that_disagree_and_damage_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = written(folder.path());
    let index = || run(ctl().arg("index").arg(&dataset).args(["--json", "--force"]));
    let path = |name: &str| dataset.join(name);
    fs::rename(path("1.tar.gz"), path("1.tar")).unwrap();
    index().error(&["1.tar", "compressed with gzip, which its name does not say", "name it `.tar.gz`"]);
    fs::rename(path("1.tar"), path("1.tar.zst")).unwrap();
    assert!(index().status.success(), "its bytes say how it is compressed");
    fs::write(path("1.tar.zst"), fs::read(path("0.tar")).unwrap()).unwrap();
    index().error(&["1.tar.zst` is compressed neither with gzip nor with zstd"]);
    let whole = fs::read(path("2.tar.zst")).unwrap();
    fs::remove_file(path("1.tar.zst")).unwrap();
    fs::write(path("2.tar.zst"), &whole[..whole.len() / 2]).unwrap();
    index().error(&["2.tar.zst` does not decompress with zstd: "]);
    fs::write(path("2.tar.zst"), &whole).unwrap();
    assert!(index().status.success());
    fs::write(path("2.tar.zst"), [&whole[..whole.len() / 2], &[0; 64], &whole[whole.len() / 2 + 64..]].concat())
        .unwrap();
    let verified = run(ctl().arg("verify").arg(&dataset));
    assert_eq!(verified.status.code(), Some(1));
    assert!(verified.stdout.contains("2.tar.zst"), "{}", verified.stdout);
}
