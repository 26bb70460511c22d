//! Datasets of the demo's pictures and of a test's records, and their job files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use super::{Finished, ctl, run};
use crate::stored::files;

/// Writes `count` of the demo's pictures into folders of classes. A picture is drawn once in a process and copied from then on.
#[track_caller]
pub fn write_pictures(folder: &Path, count: u64) {
    static DRAWN: Mutex<Vec<(PathBuf, Vec<u8>)>> = Mutex::new(Vec::new());
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = usize::try_from(count).expect("some pictures");
    if drawn.len() < count {
        let new = tempfile::tempdir().expect("a temporary folder");
        let mut pictures = ctl();
        let enough = count.next_power_of_two().to_string();
        pictures.arg("pictures").arg(new.path()).args(["--count", &enough, "--seed", "7", "--quiet"]);
        let Finished { status, stderr, .. } = run(&mut pictures);
        assert!(status.success(), "{stderr}");
        *drawn = drawn_pictures(new.path());
    }
    for (name, picture) in &drawn[..count] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder of its class")).expect("a folder is made");
        fs::write(path, picture).expect("a picture is written");
    }
}

/// Returns the pictures below a folder, in the order of their numbers.
fn drawn_pictures(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = files(folder);
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    let name = |file: &Path| file.strip_prefix(folder).expect("a file of the folder").to_owned();
    files.iter().map(|file| (name(file), fs::read(file).expect("a picture"))).collect()
}

/// A folder with a dataset and a job file.
pub struct TestDataset {
    /// The folder; removed when dropped.
    pub folder: tempfile::TempDir,
}

impl TestDataset {
    /// Packs `count` of the demo's pictures into shards of `records` records.
    pub fn of_pictures(count: u64, records: u64) -> Self {
        let dataset = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let source = dataset.path("pictures");
        write_pictures(&source, count);
        let mut pack = ctl();
        pack.arg("pack").arg(&source).arg(dataset.path("dataset"));
        pack.args(["--records-per-shard", &records.to_string(), "--block-size", "512KiB", "--json"]);
        run(&mut pack).json();
        dataset
    }

    /// Indexes a WebDataset shard that `tar` makes from pictures and labels; the keys are `0000`, `0001`, ...
    pub fn of_records(records: impl IntoIterator<Item = (Vec<u8>, String)>) -> Self {
        let key = |index| format!("{index:04}");
        Self::of_keys(records.into_iter().enumerate().map(|(index, (picture, label))| (key(index), picture, label)))
    }

    /// Indexes a WebDataset shard that `tar` makes from pictures and labels with their keys.
    pub fn of_keys(records: impl IntoIterator<Item = (String, Vec<u8>, String)>) -> Self {
        let dataset = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let files = dataset.path("records");
        fs::create_dir_all(&files).expect("a folder is made");
        fs::create_dir_all(dataset.path("dataset")).expect("a folder is made");
        for (key, picture, label) in records {
            fs::write(files.join(format!("{key}.jpg")), picture).expect("a picture is written");
            fs::write(files.join(format!("{key}.cls")), label).expect("a label is written");
        }
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(dataset.path("dataset/part-0.tar")).args(["--sort=name", "-C"]).arg(&files).arg(".");
        assert!(run(&mut tar).status.success());
        run(ctl().arg("index").arg(dataset.path("dataset")).arg("--json")).json();
        dataset
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a job file for this dataset: pictures of 64 pixels, their class, and their raw bytes.
    pub fn job(&self, name: &str, keys: &str) -> PathBuf {
        let raw = "[[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\nmax_bytes = 400000\n";
        self.write_job(name, &format!("global_batch = 24\n{keys}"), 64, raw)
    }

    /// Writes a job file like that of a training: pictures of 224 pixels and their class, batches of 64.
    pub fn training_job(&self, name: &str, epochs: u64) -> PathBuf {
        self.write_job(name, &format!("global_batch = 64\nepochs = {epochs}"), 224, "")
    }

    fn write_job(&self, name: &str, keys: &str, size: u32, columns: &str) -> PathBuf {
        let dataset = self.path("dataset");
        let text = format!(
            "name = \"{name}\"\ndataset = {dataset:?}\nseed = 5\n{keys}\n\
             [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
             ops = [{{ random_resized_crop = {{ size = {size} }} }}, {{ random_flip = {{}} }}]\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n{columns}"
        );
        let path = self.path(format!("{name}.toml"));
        fs::write(&path, text).expect("a job file is written");
        path
    }
}
