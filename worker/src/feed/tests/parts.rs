//! Tests of feeds that read large pictures in parts.

use std::{fs, path::Path, sync::Arc};

use jpeg_encoder::{ColorType, Encoder};
use spdl_dataset::{Jpegs, PackOptions, PackSource, pack};
use spdl_jpeg::testing::XorShift;
use spdl_shard::store::DatasetStore;
use spdl_types::Position;

use super::{
    PLENTY,
    fixture::{FeedFixture, resources, resources_with, run},
    flaky,
};
use crate::{
    budget::MIN_MEMORY_BYTES,
    feed::{Access, Resources, StoreAccess},
    fetch::flaky::{FlakyStore, StoreFault},
};

const PICTURES: u64 = 18;
const CROPS: &str = r#"
    name = "image"
    from = "jpg"
    decode = "image"
    ops = [{ random_resized_crop = { size = 64, scale = [0.05, 0.5] } }, { random_flip = {} }]
"#;
const TWO_EPOCHS: &str = "epochs = 2\nglobal_batch = 6";

/// Packs pictures that are large enough to be read in parts, in three classes.
async fn packed(jpegs: Jpegs, column: &str) -> FeedFixture {
    let photo = image::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/photos/coffee.png")).unwrap();
    let photo = photo.resize_exact(1400, 900, image::imageops::Triangle).into_rgb8();
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..PICTURES {
        let (mut noisy, mut draw) = (photo.clone(), XorShift::new(number + 1));
        noisy.pixels_mut().for_each(|pixel| pixel.0[1] = pixel.0[1].wrapping_add(draw.below(24) as u8));
        let folder = source.path().join(format!("class-{}", number % 3));
        fs::create_dir_all(&folder).unwrap();
        let encoder = Encoder::new_file(folder.join(format!("{number}.jpg")), 95).unwrap();
        encoder.encode(&noisy, 1400, 900, ColorType::Rgb).unwrap();
    }
    let store = DatasetStore::open(directory.path().to_str().unwrap()).unwrap();
    let options = PackOptions { jpegs, ..PackOptions::new(PackSource::ImageFolder(source.path().to_owned())) };
    pack(&store, &options, &|_| ()).await.unwrap();
    let facts = store.manifest().await.unwrap().facts();
    FeedFixture::of_column(directory, &facts, TWO_EPOCHS, column)
}

/// Creates resources that read parts through a store with faults.
async fn in_parts(fixture: &FeedFixture, memory_bytes: u64) -> (Arc<Resources>, Arc<FlakyStore>) {
    let (made, wrap) = flaky();
    let stores = StoreAccess { wrap: Some(wrap), ..StoreAccess::default() };
    let resources = resources_with(memory_bytes, Access { stores, reads_parts: true, ..Access::default() });
    resources.datasets.open(&fixture.job).await.unwrap();
    let store = made.lock().clone().unwrap();
    (resources, store)
}

/// Returns the bytes of all shards.
fn shard_bytes(fixture: &FeedFixture) -> u64 {
    let files = fs::read_dir(fixture.directory.path()).unwrap().map(|file| file.unwrap());
    let tars = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "tar"));
    tars.map(|file| file.metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crops_of_parts_are_those_of_whole_pictures_and_read_less() {
    let fixture = packed(Jpegs::Scalable, CROPS).await;
    let (whole, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(whole.len() as u64, 2 * PICTURES);
    for memory_bytes in [PLENTY, MIN_MEMORY_BYTES] {
        let (resources, store) = in_parts(&fixture, memory_bytes).await;
        let before = store.bytes();
        let (parts, _) = run(&resources, &fixture.session(2), Position::START).await.unwrap();
        assert!(parts == whole, "with {memory_bytes} bytes of memory");
        let read = store.bytes() - before;
        let of_all = 2 * shard_bytes(&fixture);
        assert!(read * 2 < of_all, "{read} of {of_all} bytes were read");
        assert_eq!(resources.store_stats().wrong_bytes, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_and_lies_changes_no_crop() {
    let fixture = packed(Jpegs::Scalable, CROPS).await;
    let (whole, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    let (resources, store) = in_parts(&fixture, PLENTY).await;
    let faults = [StoreFault::FlippedBit, StoreFault::Unavailable, StoreFault::Cut, StoreFault::FlippedBit];
    store.fail_next(faults.into_iter().cycle().take(60));
    store.fail_every(5);
    let (parts, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert!(parts == whole);
    assert_eq!(store.faults_left(), 0);
    assert!(resources.store_stats().wrong_bytes > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_in_parts_is_read_whole() {
    let raw = "name = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\nmax_bytes = 4000000";
    for (jpegs, column) in [(Jpegs::AsTheyAre, CROPS), (Jpegs::CropReady, CROPS), (Jpegs::Scalable, raw)] {
        let fixture = packed(jpegs, column).await;
        let (whole, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
        let (resources, _) = in_parts(&fixture, PLENTY).await;
        let (parts, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        assert!(parts == whole, "{jpegs:?}");
    }
}
