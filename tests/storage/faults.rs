//! One test for each fault of a store: the rank gets the same batches as without it, and the fault is counted.

use std::{collections::HashMap, time::Duration};

use spdl_testkit::{LONG, proxy::RequestFault};
use spdl_worker::fetch::RetrySettings;

use super::fixture::{DeliveredBatches, FeedSettings, StorageFixture};

const MANIFEST: &str = "manifest.spdl";

/// Injects `fault` into requests of the manifest, of indexes and of blocks, and compares with a run without faults.
async fn disturbed_by(fault: RequestFault) -> (StorageFixture, DeliveredBatches) {
    disturbed_with_silence(fault, FeedSettings::default().retry.silence_timeout).await
}

/// Does the same where a store is silent after so long: where retries are counted, longer than the pauses of a busy machine.
async fn disturbed_with_silence(fault: RequestFault, silence_timeout: Duration) -> (StorageFixture, DeliveredBatches) {
    let fixture = StorageFixture::new(24, 6).await;
    fixture.proxy.order(MANIFEST, 0, 1, fault);
    fixture.proxy.order(".tar.idx", 1, 2, fault);
    fixture.proxy.order(".tar", 1, 3, fault);
    fixture.proxy.order(".tar", 4, 1, fault);
    let mut settings = FeedSettings::default();
    settings.retry.silence_timeout = silence_timeout;
    let delivered = fixture.run(2, &settings).await.unwrap();
    assert_eq!(fixture.proxy.open_orders(), 0, "all faults have happened");
    assert_eq!(delivered.batches, fixture.undisturbed(2).await);
    assert_eq!(delivered.store.outage_ms, 0, "it is over");
    (fixture, delivered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_503_is_tried_again() {
    let (fixture, delivered) = disturbed_with_silence(RequestFault::Status(503, None), LONG).await;
    assert_eq!(delivered.store.retries, 7);
    // No other layer, such as the store's client, retries.
    assert_eq!(fixture.proxy.requests().len() as u64, delivered.store.requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_goes_to_a_store_before_its_retry_after_is_over() {
    let fixture = StorageFixture::new(24, 6).await;
    let shard = fixture.shards().remove(1);
    fixture.proxy.order(&shard, 0, 1, RequestFault::Status(429, Some(1)));
    let delivered = fixture.run(1, &FeedSettings::default()).await.unwrap();
    assert_eq!(delivered.batches, fixture.undisturbed(1).await);
    let requests = fixture.proxy.requests();
    let refused = requests.iter().position(|request| request.fault.is_some()).unwrap();
    let last = requests.iter().rfind(|request| request.path == requests[refused].path).unwrap();
    // Without Retry-After, the back-off would be 5 ms at most.
    assert!(last.at - requests[refused].at >= Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_reset_is_made_again() {
    let (_, delivered) = disturbed_by(RequestFault::Reset).await;
    assert!(delivered.store.retries >= 7, "{:?}", delivered.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_silent_store_is_repeated() {
    let (_, delivered) = disturbed_with_silence(RequestFault::Silence, Duration::from_secs(3)).await;
    assert_eq!(delivered.store.timeouts, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stalls_in_the_middle_is_requested_again() {
    // After a longer silence, the answer would be a drip.
    let (_, delivered) = disturbed_by(RequestFault::Stall).await;
    assert_eq!(delivered.store.timeouts, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_cut_off_is_requested_again() {
    disturbed_by(RequestFault::Truncated).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_body_that_claims_to_be_whole_is_requested_again() {
    disturbed_by(RequestFault::Short).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_fetched_again_and_are_no_bad_sample() {
    // Half of the faults may hit bytes that are not checked: the padding between records.
    let (_, delivered) = disturbed_by(RequestFault::FlippedByte).await;
    assert!(delivered.store.wrong_bytes >= 3, "{:?}", delivered.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_was_not_requested_is_no_answer() {
    disturbed_by(RequestFault::OtherRange).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_object_instead_of_a_range_is_no_answer() {
    let (_, delivered) = disturbed_by(RequestFault::WholeObject).await;
    assert_eq!(delivered.store.refusals, 4, "{:?}", delivered.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_drip_are_asked_for_again_from_the_first_one_on() {
    let fixture = StorageFixture::new(400, 20).await;
    let settings = FeedSettings::default();
    // No byte is missing for long, and no request would be given up for its time.
    let patient = RetrySettings { silence_timeout: Duration::from_secs(300), ..settings.retry };
    let patient = RetrySettings { request_timeout: Duration::from_secs(300), hedge_percent: 0.0, ..patient };
    let settings = FeedSettings { retry: patient, ..settings };
    let fast = fixture.run(1, &settings).await.unwrap();
    for skip in [0, 49, 49, 49] {
        fixture.proxy.order(".tar", skip, 1, RequestFault::Drip(100));
    }
    let delivered = fixture.run(1, &settings).await.unwrap();
    assert_eq!(fixture.proxy.open_orders(), 0, "all have happened");
    assert_eq!(delivered.batches, fast.batches);
    let store = delivered.store;
    assert_eq!((store.drips, store.retries, store.timeouts), (4, 4, 0), "{store:?}");
    assert_eq!(store.requests, fast.store.requests + 4, "nothing else is asked for twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_request_is_hedged_and_hedges_are_few() {
    let fixture = StorageFixture::new(400, 20).await;
    fixture.proxy.order(".tar", 120, 1, RequestFault::Slow(Duration::from_secs(300)));
    fixture.proxy.order(".tar", 60, 1, RequestFault::Slow(Duration::from_secs(300)));
    let settings = FeedSettings::default();
    let long_limits = RetrySettings { silence_timeout: Duration::from_secs(300), ..settings.retry };
    // More hedges than by default: a busy machine makes some requests slow by chance, and their hedges use the allowance up.
    let long_limits = RetrySettings { request_timeout: Duration::from_secs(300), hedge_percent: 10.0, ..long_limits };
    let delivered = fixture.run(1, &FeedSettings { retry: long_limits, ..settings }).await.unwrap();
    assert_eq!(delivered.batches, fixture.undisturbed(1).await);
    assert_eq!(fixture.proxy.open_orders(), 0, "both have happened");
    let store = delivered.store;
    // One of the two slow requests may itself have been a hedge of a request that was slow by chance.
    assert!(store.hedges >= 2 && store.hedge_wins >= 1, "{store:?}");
    assert!(store.hedges * 100 <= store.requests * 10, "{store:?}");
    assert_eq!((store.retries, store.timeouts), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_refuses_is_an_error_that_names_it_after_a_few_requests() {
    let fixture = StorageFixture::new(24, 6).await;
    let shard = fixture.shards().remove(1);
    // On a busy machine an answer may come so late that the same would be asked a second time meanwhile.
    let mut asked_once = FeedSettings::default();
    asked_once.retry.hedge_percent = 0.0;
    for (status, object) in [(403, shard.as_str()), (404, shard.as_str()), (404, MANIFEST), (400, MANIFEST)] {
        let before = fixture.proxy.requests().len();
        fixture.proxy.order(object, 0, 1 << 40, RequestFault::Status(status, None));
        let error = fixture.run(1, &asked_once).await.unwrap_err();
        assert!(error.to_string().contains(object) && !error.is_retryable(), "{status}: {error}");
        fixture.proxy.forget_orders();
        let mut asked: HashMap<String, u32> = HashMap::new();
        for request in fixture.proxy.requests().split_off(before) {
            // Reads of a shard have a range; requests without one check whether the shard has changed.
            let counts = request.fault.is_some() && (object == MANIFEST || !request.range.is_empty());
            *asked.entry(request.path + &request.range).or_default() += u32::from(counts);
        }
        // Who reads ahead asks, and then each of the two batches that are made at once, unless the first one's error has ended the run.
        let most = asked.values().max().copied();
        assert!(most.is_some_and(|most| (4..=12).contains(&most)), "{asked:?}");
    }
    // A refusal that passes after 2 requests, as a gateway may send, is no error.
    fixture.proxy.order(&shard, 0, 2, RequestFault::Status(403, None));
    assert_eq!(fixture.run(1, &FeedSettings::default()).await.unwrap().batches, fixture.undisturbed(1).await);
}
