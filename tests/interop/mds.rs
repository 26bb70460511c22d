//! Reads MDS datasets that MosaicML Streaming's own writer made, with every encoding and compression.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spdl_cli::pictures::write_image_folder;
use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
};

use super::trained::trains_end_to_end;

const SAMPLES: u64 = 40;
/// Samples where every value is compared; some of each length, type and shape.
const FEW: u64 = 18;

struct Written {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl Written {
    /// Writes a dataset of pictures.
    fn new(compression: &str, hashes: &str, pickle: &str) -> Self {
        Self::several(SAMPLES, pickle, &[("dataset", compression, hashes)])
    }

    /// Writes datasets of the same pictures, each with a name, a compression and kinds of checksums.
    fn several(samples: u64, pickle: &str, datasets: &[(&str, &str, &str)]) -> Self {
        let written = Self { folder: tempfile::tempdir().unwrap(), python: python() };
        let pictures = written.path("pictures");
        write_image_folder(&pictures, samples, 5, |_| {}).unwrap();
        let mut arguments = vec!["write".into(), pictures.display().to_string(), pickle.to_owned()];
        for (name, compression, hashes) in datasets {
            arguments.extend([written.path(name).display().to_string(), (*compression).into(), (*hashes).into()]);
        }
        run_script(&written.python, "tests/interop/mds.py", arguments);
        written
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn index(&self, name: &str) -> Value {
        run(ctl().arg("index").arg(self.path(name)).args(["--json", "--force", "--block-size", "256KiB"])).json()
    }

    fn shard(&self) -> PathBuf {
        let files = fs::read_dir(self.path("dataset")).unwrap().map(|file| file.unwrap().path());
        let is_shard = |path: &PathBuf| path.to_str().unwrap().contains("shard.00001.mds") && !is_index(path);
        files.into_iter().find(is_shard).unwrap()
    }
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| suffix == "idx")
}

#[test]
fn every_encoding_and_compression_gives_what_their_reader_gives() {
    let datasets = [
        ("plain", "", "sha1,xxh64"),
        ("brotli", "br:3", ""),
        ("bzip2", "bz2", "md5"),
        ("gzip", "gz:1", "xxh3_64"),
        ("snappy", "snappy", "sha256"),
        ("zstd", "zstd", ""),
    ];
    let written = Written::several(FEW, "", &datasets);
    let mut arguments = vec!["compare".to_owned()];
    for (name, ..) in datasets {
        let report = written.index(name);
        assert_eq!(report["samples"], FEW, "{name}: {report}");
        assert!(report["shards"].as_u64() > Some(1), "{report}");
        let (dataset, unpacked) = (written.path(name), written.path(&format!("{name} unpacked")));
        let verified = run(ctl().arg("verify").arg(&dataset).arg("--json")).json();
        assert_eq!((&verified["records"], verified["faults"].as_array().unwrap().len()), (&FEW.into(), 0));
        run(ctl().arg("unpack").arg(&dataset).arg(&unpacked).arg("--json")).json();
        arguments.extend([dataset, unpacked].map(|folder| folder.display().to_string()));
    }
    let compared = run_script(&written.python, "tests/interop/mds.py", arguments);
    assert_eq!(compared["samples"], FEW * datasets.len() as u64);
    assert_eq!(compared["values"].as_u64().unwrap() % compared["samples"].as_u64().unwrap(), 0);
}

const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"image\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = { size = 32 } }]\n\
    [[column]]\nname = \"pil\"\nfrom = \"pil_5\"\ndecode = \"image\"\nops = [{ resize = { size = [4, 4] } }]\n\
    [[column]]\nname = \"frames\"\nfrom = \"frames\"\ndecode = \"image\"\nops = [{ random_crop = 16 }]\npictures = 2\n\
    [[column]]\nname = \"jpegs\"\nfrom = \"jpegs\"\ndecode = \"image\"\nops = [{ random_resized_crop = 8 }]\nmax_rows = 2\n\
    [[column]]\nname = \"pils\"\nfrom = \"pils\"\ndecode = \"image\"\nops = [{ resize = [4, 4] }]\nmax_rows = 2\n\
    [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
    [[column]]\nname = \"caption\"\nfrom = \"caption\"\ndecode = \"bytes\"\n\
    [[column]]\nname = \"number\"\nfrom = \"meta\"\ndecode = \"json\"\npath = \"deep.half\"\ndtype = \"f32\"\n\
    [[column]]\nname = \"half\"\nfrom = \"n_float16\"\ndecode = \"tensor\"\nshape = []\ndtype = \"f16\"\n\
    [[column]]\nname = \"array\"\nfrom = \"fixed_array\"\ndecode = \"tensor\"\nshape = [2, 3]\ndtype = \"f32\"\n";

#[tokio::test]
async fn a_job_on_mds_trains_end_to_end() {
    let written = Written::new("", "xxh64", "");
    written.index("dataset");
    trains_end_to_end(&written.path("dataset"), SAMPLES, COLUMNS).await;
}

#[tokio::test]
async fn a_job_on_compressed_mds_trains_end_to_end() {
    let written = Written::new("zstd:3", "xxh64", "");
    written.index("dataset");
    trains_end_to_end(&written.path("dataset"), SAMPLES, COLUMNS).await;
}

/// Replays the dataset's only job.
fn replay(written: &Written, column: &str) -> spdl_testkit::processes::Finished {
    let job = written.path("job.toml");
    let text = format!(
        "name = \"j\"\ndataset = {:?}\nglobal_batch = 4\nbad_samples = \"fail\"\n{column}",
        written.path("dataset")
    );
    fs::write(&job, text).unwrap();
    run(ctl().arg("replay").arg(&job).args(["--all", "--json"]))
}

#[test]
fn pickles_are_refused_by_name_and_all_other_columns_are_read() {
    let written = Written::new("", "", "pickle");
    let report = written.index("dataset");
    let notes = report["notes"].to_string();
    assert!(notes.contains("column `object` holds pickled Python objects, which are never read"), "{report}");
    let column = |from| format!("[[column]]\nname = \"x\"\nfrom = {from:?}\ndecode = \"bytes\"\n");
    replay(&written, &column("object")).error(&[
        "record `shard.00",
        "column `x`: field `object` is a pickled Python object, which is never read",
        "`json`",
    ]);
    assert_eq!(replay(&written, &column("caption")).json()["samples"], SAMPLES);
}

#[test]
fn damage_is_found_and_named() {
    for (compression, hashes) in [("", "xxh64"), ("zstd", "xxh64"), ("gz", "")] {
        let written = Written::new(compression, hashes, "");
        written.index("dataset");
        let (dataset, shard) = (written.path("dataset"), written.shard());
        let name = shard.file_name().unwrap().to_str().unwrap();
        let mut bytes = fs::read(&shard).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        fs::write(&shard, &bytes).unwrap();
        let verified = run(ctl().arg("verify").arg(&dataset));
        assert_eq!(verified.status.code(), Some(1), "{compression}");
        assert!(verified.stdout.contains(name), "{}", verified.stdout);
        let expected = match (compression, hashes) {
            (_, "xxh64") => "its checksum is xxh64:",
            _ => "does not decompress with gzip",
        };
        assert!(verified.stdout.contains(expected), "{}", verified.stdout);
        if !compression.is_empty() {
            let column = "[[column]]\nname = \"x\"\nfrom = \"caption\"\ndecode = \"bytes\"\n";
            replay(&written, column).error(&[name, expected]);
        }
        fs::write(&shard, &bytes[..middle]).unwrap();
        let force = ["--force", "--json"];
        run(ctl().arg("index").arg(&dataset).args(force)).error(&[name, "copy it again"]);
        fs::remove_file(&shard).unwrap();
        run(ctl().arg("index").arg(&dataset).args(force)).error(&[name, "which is not there"]);
    }
}
