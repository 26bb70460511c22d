//! Pictures on a web server behind the proxy, for jobs of real processes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    processes::{TestDataset, ctl, run, write_pictures},
    proxy::Proxy,
    s3::S3Server,
};

/// Pictures in shards on a web server behind the proxy.
pub struct StoredPictures {
    /// The packed dataset, and the folder for job files.
    pub dataset: TestDataset,
    /// The proxy before the web server.
    pub proxy: Proxy,
    _server: S3Server,
    url: String,
}

impl StoredPictures {
    /// Packs `count` pictures, `per_shard` to a shard; truncates the `bad` ones.
    pub async fn new(count: u64, per_shard: u64, bad: &[u64]) -> Self {
        let cut = |number, picture: &[u8]| bad.contains(&number).then(|| picture[..picture.len() / 3].to_vec());
        Self::altered(count, per_shard, cut).await
    }

    /// Packs `count` pictures, `per_shard` to a shard. `alter` gets the number and the bytes of each, and returns other
    /// bytes for those that it replaces.
    pub async fn altered(count: u64, per_shard: u64, alter: impl Fn(u64, &[u8]) -> Option<Vec<u8>>) -> Self {
        let dataset = TestDataset { folder: tempfile::tempdir().expect("a temporary folder") };
        let pictures = dataset.path("pictures");
        write_pictures(&pictures, count);
        for (number, file) in (0..).zip(files(&pictures)) {
            if let Some(altered) = alter(number, &fs::read(&file).expect("a picture")) {
                fs::write(&file, altered).expect("a picture is replaced");
            }
        }
        let mut pack = ctl();
        pack.arg("pack").arg(&pictures).arg(dataset.path("dataset")).args(["--block-size", "256KiB", "--json"]);
        run(pack.args(["--records-per-shard", &per_shard.to_string()])).json();
        let server = S3Server::start_open();
        server.upload(&dataset.path("dataset"), "pictures").await;
        let proxy = Proxy::start(server.address());
        let url = proxy.before(&server.web_url("pictures"));
        Self { dataset, proxy, _server: server, url }
    }

    /// Writes a job file with pictures of 32 pixels and their class.
    pub fn job(&self, name: &str, keys: &str) -> PathBuf {
        self.job_of(name, keys, 32)
    }

    /// Writes a job file with pictures of `size` pixels and their class.
    pub fn job_of(&self, name: &str, keys: &str, size: u32) -> PathBuf {
        let text = format!(
            "name = \"{name}\"\ndataset = {:?}\nseed = 5\nglobal_batch = 16\n{keys}\n\
             [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
             ops = [{{ random_resized_crop = {{ size = {size} }} }}]\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n",
            self.url
        );
        let path = self.dataset.path(format!("{name}.toml"));
        fs::write(&path, text).expect("a job file is written");
        path
    }
}

/// Returns the content of all files below a folder, by their paths in it.
///
/// # Panics
/// If a file cannot be read, or its name is not UTF-8.
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let name =
        |file: &Path| file.strip_prefix(folder).expect("a file of the folder").to_str().expect("text").to_owned();
    files(folder).iter().map(|file| (name(file), fs::read(file).expect("a file"))).collect()
}

/// Returns all files below a folder, sorted by path.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
