//! One test for each fault of a store: the rank gets the same batches as without it, and the fault is counted.

use std::{collections::HashMap, time::Duration};

use spdl_testkit::proxy::Fault;
use spdl_worker::fetch::RetrySettings;

use crate::scene::{Delivered, Scene, Settings};

const MANIFEST: &str = "manifest.spdl";

/// Injects `fault` into requests of the manifest, of indexes and of blocks, and compares with a run without faults.
async fn disturbed_by(fault: Fault) -> (Scene, Delivered) {
    let scene = Scene::new(24, 6).await;
    scene.proxy.order(MANIFEST, 0, 1, fault);
    scene.proxy.order(".tar.idx", 1, 2, fault);
    scene.proxy.order(".tar", 1, 3, fault);
    scene.proxy.order(".tar", 4, 1, fault);
    let delivered = scene.run(2, &Settings::default()).await.unwrap();
    assert_eq!(scene.proxy.open_orders(), 0, "all faults have happened");
    assert_eq!(delivered.batches, scene.undisturbed(2).await);
    assert_eq!(delivered.store.trouble_ms, 0, "it is over");
    (scene, delivered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_503_is_tried_again() {
    let (scene, delivered) = disturbed_by(Fault::Status(503, None)).await;
    assert_eq!(delivered.store.retries, 7);
    // No other layer, such as the store's client, retries.
    assert_eq!(scene.proxy.requests().len() as u64, delivered.store.requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_says_when_to_come_back_is_left_alone_till_then() {
    let scene = Scene::new(24, 6).await;
    let shard = scene.shards().remove(1);
    scene.proxy.order(&shard, 0, 1, Fault::Status(429, Some(1)));
    let delivered = scene.run(1, &Settings::default()).await.unwrap();
    assert_eq!(delivered.batches, scene.undisturbed(1).await);
    let requests = scene.proxy.requests();
    let refused = requests.iter().position(|request| request.fault.is_some()).unwrap();
    let last = requests.iter().rfind(|request| request.path == requests[refused].path).unwrap();
    // Without Retry-After, the back-off would be 5 ms at most.
    assert!(last.at - requests[refused].at >= Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_reset_is_made_again() {
    let (_, delivered) = disturbed_by(Fault::Reset).await;
    assert!(delivered.store.retries >= 7, "{:?}", delivered.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_silent_is_asked_again() {
    let (_, delivered) = disturbed_by(Fault::Silence).await;
    assert_eq!(delivered.store.timeouts, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stalls_in_the_middle_is_asked_for_again() {
    let (_, delivered) = disturbed_by(Fault::Stall).await;
    assert_eq!(delivered.store.timeouts, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_cut_off_is_asked_for_again() {
    disturbed_by(Fault::Truncated).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_body_that_claims_to_be_whole_is_asked_for_again() {
    disturbed_by(Fault::Short).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_fetched_again_and_are_no_bad_sample() {
    // Half of the faults may hit bytes that are not checked: the padding between records.
    let (_, delivered) = disturbed_by(Fault::FlippedByte).await;
    assert!(delivered.store.wrong_bytes >= 3, "{:?}", delivered.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_was_not_asked_for_is_no_answer() {
    disturbed_by(Fault::OtherRange).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_object_instead_of_a_range_is_no_answer() {
    let (_, delivered) = disturbed_by(Fault::WholeObject).await;
    assert_eq!(delivered.store.refusals, 4, "{:?}", delivered.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_request_is_hedged_and_hedges_are_few() {
    let scene = Scene::new(400, 20).await;
    scene.proxy.order(".tar", 120, 1, Fault::Slow(Duration::from_secs(300)));
    scene.proxy.order(".tar", 60, 1, Fault::Slow(Duration::from_secs(300)));
    let settings = Settings::default();
    let patient = RetrySettings { silence_timeout: Duration::from_secs(300), ..settings.retry };
    let patient = RetrySettings { request_timeout: Duration::from_secs(300), ..patient };
    let delivered = scene.run(1, &Settings { retry: patient, ..settings }).await.unwrap();
    assert_eq!(delivered.batches, scene.undisturbed(1).await);
    assert_eq!(scene.proxy.open_orders(), 0, "both have happened");
    let store = delivered.store;
    // One of the two slow requests may itself have been a hedge of a request that was slow by chance.
    assert!(store.hedges >= 2 && store.hedge_wins >= 1, "{store:?}");
    assert!(store.hedges * 100 <= store.requests * 3, "{store:?}");
    assert_eq!((store.retries, store.timeouts), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_refuses_is_an_error_that_names_it_after_a_few_requests() {
    let scene = Scene::new(24, 6).await;
    let shard = scene.shards().remove(1);
    for (status, object) in [(403, shard.as_str()), (404, shard.as_str()), (404, MANIFEST), (400, MANIFEST)] {
        let before = scene.proxy.requests().len();
        scene.proxy.order(object, 0, 1 << 40, Fault::Status(status, None));
        let error = scene.run(1, &Settings::default()).await.unwrap_err();
        assert!(error.to_string().contains(object) && !error.is_retryable(), "{status}: {error}");
        scene.proxy.forget_orders();
        let mut asked: HashMap<String, u32> = HashMap::new();
        for request in scene.proxy.requests().split_off(before) {
            // Reads of a shard have a range; requests without one check whether the shard has changed.
            let counts = request.fault.is_some() && (object == MANIFEST || !request.range.is_empty());
            *asked.entry(request.path + &request.range).or_default() += u32::from(counts);
        }
        assert_eq!(asked.values().max(), Some(&4), "{asked:?}");
    }
    // A refusal that passes after 2 requests, as a gateway may send, is no error.
    scene.proxy.order(&shard, 0, 2, Fault::Status(403, None));
    assert_eq!(scene.run(1, &Settings::default()).await.unwrap().batches, scene.undisturbed(1).await);
}
