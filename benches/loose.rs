//! Compares a job on loose JPEGs with the same job on the packed ones, both on an S3 server with a latency, in images per
//! second of a rank's feed.
//!
//! `cargo bench --bench loose -- [--files N] [--pictures N] [--rounds N] [--latency-ms N] [--threads T]`
#![allow(unsafe_code)] // Sets the environment before there is a second thread.

mod arguments;
mod bucket;
mod columns;
mod rank;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use columns::COLUMNS;
use spdl_cli::pictures::write_image_folder;
use spdl_dataset::{IndexOptions, PackOptions, PackSource, index, pack};
use spdl_job::Job;
use spdl_shard::store::DatasetStore;
use spdl_worker::{budget::Budget, feed::Resources};

/// Writes `files` pictures to folders of classes, of which `pictures` are different and the others are hard links.
fn write_pictures(folder: &Path, files: u64, pictures: u64) {
    write_image_folder(folder, pictures.min(files), 1, |_| {}).expect("pictures are written");
    let mut drawn = Vec::new();
    for class in fs::read_dir(folder).expect("the classes").map(|class| class.expect("a class").path()) {
        drawn.extend(fs::read_dir(class).expect("pictures").map(|picture| picture.expect("a picture").path()));
    }
    drawn.sort_unstable();
    for file in pictures..files {
        let picture = &drawn[(file % drawn.len() as u64) as usize];
        let copy = picture.with_file_name(format!("copy{file:07}.jpg"));
        fs::hard_link(picture, copy).expect("a hard link");
    }
}

fn local(path: &Path) -> DatasetStore {
    DatasetStore::create_with(path.to_str().expect("UTF-8"), &Default::default()).expect("a folder")
}

async fn job_of(name: &str) -> Job {
    let url = format!("s3://{}/{name}", bucket::BUCKET);
    let manifest = DatasetStore::open(&url).expect("a bucket").manifest().await.expect("a dataset");
    let text = format!("name = \"{name}\"\ndataset = \"{url}\"\nseed = 1\nglobal_batch = 64\nepochs = 1\n{COLUMNS}");
    rank::job(&text, &manifest.facts())
}

/// Pulls the whole job with one rank and empty caches; returns images per second.
async fn pull(job: &Job, cores: f64) -> f64 {
    let resources = Resources::new("bench", Budget { cores, memory_bytes: 1 << 30, disk: None }).expect("threads");
    let started = Instant::now();
    rank::drain(rank::start(&resources, job, 0)).await as f64 / started.elapsed().as_secs_f64()
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let (files, pictures) = (arguments::number("--files", 20_000), arguments::number("--pictures", 2000));
    let (rounds, latency) = (arguments::number("--rounds", 3), arguments::number("--latency-ms", 10));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let threads = arguments::number("--threads", cores);
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let loose = folder.path().join("loose");
    write_pictures(&loose, files, pictures);
    let address = bucket::serve(folder.path(), Duration::from_millis(latency));
    let endpoint = format!("http://{address}");
    for (name, value) in [
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "bench"),
        ("AWS_SECRET_ACCESS_KEY", "bench"),
    ] {
        // SAFETY: no other thread of this process reads or writes the environment: the server's does not.
        unsafe { std::env::set_var(name, value) };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let packed = PackOptions::new(PackSource::ImageFolder(loose.clone()));
        pack(&local(&folder.path().join("packed")), &packed, &|_| {}).await.expect("pictures are packed");
        let from = DatasetStore::open(&format!("s3://{}/loose", bucket::BUCKET)).expect("a bucket");
        index(&from, &local(&loose), &IndexOptions::default(), &|_| {}).await.expect("files are indexed");
        println!("{files} pictures, {threads} decoding threads, random_resized_crop 224, {latency} ms a request");
        let (packed, loose) = (job_of("packed").await, job_of("loose").await);
        for _ in 0..rounds {
            let before = pull(&packed, threads as f64).await;
            let rate = pull(&loose, threads as f64).await;
            // The machine's speed drifts: compare with the mean of the runs before and after.
            let after = pull(&packed, threads as f64).await;
            let ratio = rate / ((before + after) / 2.0);
            println!("packed {before:6.0} and {after:6.0} images/s, loose {rate:6.0} images/s: {ratio:.2}");
        }
    });
}
