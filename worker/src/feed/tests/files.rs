//! Tests of feeds that read loose files.

use std::fs;

use super::{
    fixture::{FeedFixture, SAMPLES, resources, run, text},
    *,
};
use crate::feed::dataset::DatasetView;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loose_files_give_every_world_the_same_samples_and_each_file_is_read_once() {
    let fixture = FeedFixture::of_files(TWO_EPOCHS).await;
    let (made, wrap) = flaky();
    let resources = resources(PLENTY, Some(wrap));
    let (alone, steps) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(steps, 2 * SAMPLES / 12);
    for Seen { id, label, text: delivered, .. } in alone.values() {
        assert_eq!((*label, delivered), (*id as i64 * 3, &text(*id)));
    }
    let store = made.lock().clone().unwrap();
    // The first batch does not wait for whole blocks, so some of its files are read a second time with their blocks.
    let (files, again) = (2 * SAMPLES, 2 * 12);
    assert!((files..=files + again).contains(&store.reads()), "{} reads", store.reads());
    for world in [2, 3] {
        let (shared, _) = run(&resources, &fixture.session(world), Position::START).await.unwrap();
        assert!(shared == alone, "world {world} gets what one rank gets");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_memory_fetches_single_files_and_gives_the_same_samples() {
    let fixture = FeedFixture::of_files(TWO_EPOCHS).await;
    let (plenty, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    let (little, _) = run(&resources(MIN_MEMORY_BYTES, None), &fixture.session(1), Position::START).await.unwrap();
    assert!(plenty == little);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changed_or_vanished_ends_the_feed_by_its_name() {
    for (change, expected) in
        [("changed", "file `000077.txt` changed: the manifest has"), ("vanished", "file `000077.txt` cannot be read")]
    {
        let fixture = FeedFixture::of_files(TWO_EPOCHS).await;
        let path = fixture.directory.path().join("000077.txt");
        match change {
            "changed" => fs::write(&path, "another text").unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        }
        let error = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap_err();
        assert!(error.to_string().contains(expected) && !error.is_retryable(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_block_are_requested_together() {
    let fixture = FeedFixture::of_files(TWO_EPOCHS).await;
    let (made, wrap) = flaky();
    let resources = resources(PLENTY, Some(wrap));
    let dataset = DatasetView::new(resources.datasets.open(&fixture.job).await.unwrap().first().clone(), &[]);
    let place = dataset.place(1);
    // No answer comes before 16 requests are on their way.
    made.lock().as_ref().unwrap().answer_in_groups_of(16);
    let block = dataset.block(1);
    let range = block.offset..block.offset + block.bytes;
    let bytes = tokio::time::timeout(std::time::Duration::from_secs(60), resources.fetcher.fetch(&place, vec![range]));
    let bytes = bytes.await.expect("answers within a minute").unwrap();
    assert!(bytes.slice(block.offset..block.offset + block.bytes).is_some());
    assert_eq!(made.lock().as_ref().unwrap().reads(), 64);
}
