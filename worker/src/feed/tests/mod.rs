//! Tests of feeds that read a dataset on disk.

mod balance;
mod dataset_sounds;
mod files;
pub(crate) mod fixture;
mod packed_sources;
mod parts;
mod picture_parts;
mod recorded;
mod room;
mod sequence;
mod sharing;
mod slow;
mod sounds;
mod sources;
mod tokens;
mod videos;

use std::{collections::BTreeMap, fs, sync::Arc, time::Instant};

use fixture::{FeedFixture, SAMPLES, Seen, assert_every_world_gets, drain, resources, run, start, text};
use object_store::ObjectStore;
use spdl_control::messages::Session;
use spdl_job::layout::entry_flags;
use spdl_store::StoreLayer;
use spdl_types::{Position, SessionId, Stage};

use super::*;
use crate::{
    budget::{Budget, MIN_MEMORY_BYTES},
    fetch::flaky::{FlakyStore, StoreFault},
    transform::TransformSettings,
};

const PLENTY: u64 = 64 << 20;
const TWO_EPOCHS: &str = "epochs = 2\nglobal_batch = 12\nmax_bad_fraction = 1.0";

pub(crate) fn flaky() -> (Arc<parking_lot::Mutex<Option<Arc<FlakyStore>>>>, WrapStore) {
    let made = Arc::new(parking_lot::Mutex::new(None));
    let keep = made.clone();
    let wrap = move |inner: Arc<dyn ObjectStore>| -> Arc<dyn ObjectStore> {
        let store = Arc::new(FlakyStore::new(inner));
        *keep.lock() = Some(store.clone());
        store.layered()
    };
    (made, Arc::new(wrap))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_gets_the_same_stream_with_the_samples_own_bytes() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let resources = resources(PLENTY, None);
    let (alone, steps) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(steps, 2 * SAMPLES / 12);
    for epoch in 0..2 {
        let mut ids: Vec<u64> =
            alone.iter().filter(|((at, _), _)| at.epoch == epoch).map(|(_, seen)| seen.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..SAMPLES).collect::<Vec<_>>());
    }
    for Seen { id, label, text: reported, .. } in alone.values() {
        assert_eq!((*label, reported), (*id as i64 * 3, &text(*id)));
    }
    assert_every_world_gets(&alone, &resources, &fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_exact_epoch_is_masked_and_of_a_padded_one_marked() {
    for (policy, flag) in [("exact", entry_flags::INVALID), ("pad", entry_flags::PADDING)] {
        let fixture = FeedFixture::new(&[], &format!("epochs = 1\nglobal_batch = 32\nepoch_end = \"{policy}\""));
        let (seen, steps) = run(&resources(PLENTY, None), &fixture.session(4), Position::START).await.unwrap();
        assert_eq!(steps, 4);
        let flagged: Vec<_> = seen.iter().filter(|((_, flags), _)| *flags != 0).collect();
        assert_eq!(flagged.len() as u64, 4 * 32 - SAMPLES);
        for ((_, flags), sample) in flagged {
            assert_eq!(*flags, flag);
            let zero = sample.label == 0 && sample.text.is_empty();
            assert!(if flag == entry_flags::INVALID { zero } else { sample.text == text(sample.id) });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_batch_of_a_partial_epoch_is_short_and_a_rank_without_a_share_has_none() {
    let fixture = FeedFixture::new(&[], "epochs = 1\nglobal_batch = 59\nepoch_end = \"partial\"");
    let resources = resources(PLENTY, None);
    let (alone, steps) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!((alone.len() as u64, steps), (SAMPLES, 3));
    assert!(alone.iter().all(|((_, flags), sample)| *flags == 0 && sample.text == text(sample.id)));
    let mut shared = BTreeMap::new();
    let mut batches = Vec::new();
    for rank in 0..4 {
        let mut feed = start(&resources, &fixture.session(4), rank, Position::START);
        let (seen, steps) = drain(&mut feed).await.unwrap();
        shared.extend(seen);
        batches.push(steps);
    }
    assert!(shared == alone);
    assert_eq!(batches, [2, 3, 2, 3], "the last 2 of 120 samples are dealt to two ranks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_samples_are_replaced_by_others_the_same_in_every_world() {
    let bad = [3, 50, 51, 119];
    let fixture = FeedFixture::new(&bad, TWO_EPOCHS);
    let resources = resources(PLENTY, None);
    let (alone, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(alone.len() as u64, 2 * SAMPLES);
    for sample in alone.values() {
        assert!(!bad.contains(&sample.id));
        assert_eq!((sample.label, &sample.text), (sample.id as i64 * 3, &text(sample.id)));
    }
    let replaced = alone.keys().filter(|(_, flags)| *flags == entry_flags::SUBSTITUTED).count();
    assert_eq!(replaced, 2 * bad.len());
    let (shared, _) = run(&resources, &fixture.session(4), Position::START).await.unwrap();
    assert!(shared == alone);
    let mut reported = resources.decoding.bad.lock().unreported(100);
    reported.sort_by_key(|sample| sample.sample);
    assert_eq!(reported.iter().map(|sample| sample.sample.0).collect::<Vec<_>>(), bad, "each is reported once");
    assert_eq!((reported[1].shard.as_str(), reported[1].key.as_str()), ("1.tar", "000050"));
    assert!(reported[1].cause.contains("label"), "{}", reported[1].cause);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masked_bad_samples_are_zero_and_flagged() {
    let fixture = FeedFixture::new(&[7], &format!("bad_samples = \"mask\"\n{TWO_EPOCHS}"));
    let (seen, _) = run(&resources(PLENTY, None), &fixture.session(2), Position::START).await.unwrap();
    let masked: Vec<_> = seen.values().filter(|sample| sample.flags != 0).collect();
    assert_eq!(masked.len(), 2);
    for sample in masked {
        let expected = Seen { id: 7, flags: entry_flags::MASKED, label: 0, text: Vec::new() };
        assert_eq!(*sample, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_allows_no_bad_sample_fails_and_names_it() {
    let fails = FeedFixture::new(&[7], &format!("bad_samples = \"fail\"\n{TWO_EPOCHS}"));
    let error = run(&resources(PLENTY, None), &fails.session(1), Position::START).await.unwrap_err();
    assert!(error.to_string().contains("`000007` of shard `0.tar`") && !error.is_retryable(), "{error}");
    let strict = FeedFixture::new(&[7, 8], &TWO_EPOCHS.replace("1.0", "0.01"));
    let error = run(&resources(PLENTY, None), &strict.session(1), Position::START).await.unwrap_err();
    assert!(matches!(&error, FeedError::TooManyBad(many) if many.bad == 2), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_and_lies_changes_nothing() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let (expected, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    for memory_bytes in [PLENTY, MIN_MEMORY_BYTES] {
        let (store, wrap) = flaky();
        let resources = resources(memory_bytes, Some(wrap));
        resources.datasets.open(&fixture.job).await.unwrap();
        let store = store.lock().clone().unwrap();
        store.fail_next([StoreFault::FlippedBit, StoreFault::Unavailable, StoreFault::Cut, StoreFault::FlippedBit]);
        store.fail_every(5);
        let (seen, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        assert!(seen == expected);
        assert_eq!(store.faults_left(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_without_room_fetches_records_and_gives_the_same() {
    let fixture = FeedFixture::new(&[5], TWO_EPOCHS);
    let (expected, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    let resources = resources(PLENTY, None);
    let mut feed = start(&resources, &fixture.session(1), 0, Position::START);
    resources.memory.slots.lend(PLENTY);
    let (seen, steps) = drain(&mut feed).await.unwrap();
    assert!(seen == expected);
    assert_eq!(resources.memory_bytes().1, 0);
    let end = feed.next().await.unwrap();
    assert!(
        matches!(end, FeedEvent::End { sequence, position } if sequence == steps && position == Position::new(2, 0))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_stay_wrong_end_the_feed_and_name_the_record() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let path = fixture.directory.path().join("1.tar");
    let mut tar = fs::read(&path).unwrap();
    let at = tar.windows(9).position(|window| window == b"sample 45").unwrap();
    tar[at] ^= 1;
    fs::write(&path, tar).unwrap();
    let error = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap_err().to_string();
    assert!(error.contains("`txt` of record `000045` in shard `1.tar`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_or_manifest_that_changed_is_refused_by_name() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let path = fixture.directory.path().join("2.tar");
    let tar = fs::read(&path).unwrap();
    fs::write(&path, &tar[..tar.len() - 512]).unwrap();
    let error = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap_err();
    assert!(error.to_string().contains("shard `2.tar` changed") && !error.is_retryable(), "{error}");

    let other = FeedFixture::new(&[1], TWO_EPOCHS);
    fs::copy(other.directory.path().join("manifest.spdl"), fixture.directory.path().join("manifest.spdl")).unwrap();
    let error = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap_err().to_string();
    for part in ["`train`", &fixture.job.dataset_fingerprint.to_string(), &other.job.dataset_fingerprint.to_string()] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_filled_without_a_free_slot_and_the_stall_names_it() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let resources = resources(PLENTY, None);
    let mut feed = start(&resources, &fixture.session(1), 0, Position::START);
    let mut slots = Vec::new();
    for expected in 0..DEFAULT_SLOTS {
        let FeedEvent::Filled { sequence, slot, .. } = feed.next().await.unwrap() else { panic!("too early an end") };
        assert_eq!(sequence, u64::from(expected));
        slots.push(slot);
    }
    while feed.stall().is_none() {
        tokio::task::yield_now().await;
    }
    let stall = feed.stall().unwrap();
    assert_eq!((stall.worker.as_str(), &stall.stage), ("test", &Stage::HandOver));
    assert!(stall.waiting_for.contains("one of 4 slots of rank 0"), "{stall}");
    assert!(matches!(feed.free(9), Err(FeedError::NotLent { slot: 9 })));
    feed.free(slots[0]).unwrap();
    assert!(matches!(feed.next().await.unwrap(), FeedEvent::Filled { sequence: 4, .. }));
    assert!(matches!(feed.free(slots[0]).and_then(|()| feed.free(slots[0])), Err(FeedError::NotLent { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_hangs_is_what_the_stall_names() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let (store, wrap) = flaky();
    let resources = resources(PLENTY, Some(wrap));
    let dataset = resources.datasets.open(&fixture.job).await.unwrap();
    store.lock().as_ref().unwrap().fail_next([StoreFault::Hang; 200]);
    let feed = start(&resources, &fixture.session(1), 0, Position::START);
    let stall = loop {
        match feed.stall() {
            Some(stall) if stall.stage == Stage::Fetch => break stall,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(stall.waiting_for.contains(".tar`"), "{stall}");
    drop((feed, dataset));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slabs_and_cache_stay_within_the_budget_and_come_back() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let resources = resources(MIN_MEMORY_BYTES, None);
    let session = fixture.session(1);
    let feeds: Vec<_> = std::iter::from_fn(|| {
        let request = FeedRequest {
            session: session.clone(),
            rank: 0,
            from: Position::START,
            slots: 64,
            slab: SlabKind::Private,
        };
        RankFeed::start(&resources, request).ok()
    })
    .take(1000)
    .collect();
    assert!(feeds.len() > 1 && feeds.len() < 1000, "{} feeds", feeds.len());
    let request = FeedRequest { session, rank: 0, from: Position::START, slots: 0, slab: SlabKind::Private };
    let error = RankFeed::start(&resources, request.clone()).unwrap_err();
    assert!(matches!(error, FeedError::Memory { .. }) && error.to_string().contains("memory budget"), "{error}");
    let (slabs, cache) = resources.memory_bytes();
    assert!(slabs + cache <= MIN_MEMORY_BYTES, "{slabs} + {cache}");
    drop(feeds);
    let mut feed = RankFeed::start(&resources, request).unwrap();
    assert_eq!(drain(&mut feed).await.unwrap().0.len() as u64, 2 * SAMPLES);
    drop(feed);
    assert_eq!(resources.memory_bytes().0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_only_fetches_reads_the_same_bytes_and_decodes_nothing() {
    let fixture = FeedFixture::new(&[7], TWO_EPOCHS);
    let (decoding, fetching) = (resources(PLENTY, None), resources(PLENTY, None));
    let (decoded, steps) = run(&decoding, &fixture.session(1), Position::START).await.unwrap();
    let session = fixture.session(1);
    let request = FeedRequest { session, rank: 0, from: Position::START, slots: 0, slab: SlabKind::Private };
    let mut feed = RankFeed::start_fetching(&fetching, request).unwrap();
    let (fetched, fetched_steps) = drain(&mut feed).await.unwrap();
    assert_eq!((fetched.len(), fetched_steps), (decoded.len(), steps));
    let masked = |seen: &Seen| seen.flags == entry_flags::MASKED && seen.label == 0 && seen.text.is_empty();
    assert!(fetched.values().all(masked), "nothing is decoded");
    let of = |resources: &Resources, wanted| {
        resources.stages(Instant::now()).into_iter().find(|stage| stage.stage == wanted).unwrap()
    };
    let (fetch, before) = (of(&fetching, Stage::Fetch), of(&decoding, Stage::Fetch));
    assert_eq!((fetch.items, fetch.bytes), (before.items, before.bytes));
    let decode = of(&fetching, Stage::Decode);
    assert_eq!((decode.items, decode.failures), (2 * SAMPLES, 0), "the bad sample is not looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_samples_are_decoded_over_and_over_without_another_request() {
    let fixture = FeedFixture::new(&[7], TWO_EPOCHS);
    let resources = resources(PLENTY, None);
    let session = Session { global_batch: SAMPLES as u32, ..fixture.session(1) };
    let mut held = HeldSamples::read(&resources, session).await.unwrap();
    let of = |wanted| resources.stages(Instant::now()).into_iter().find(|stage| stage.stage == wanted).unwrap();
    let fetched = of(Stage::Fetch);
    for round in 1..=3 {
        let decoded;
        (held, decoded) = held.decode().await.unwrap();
        assert_eq!(decoded as u64, SAMPLES - 1, "all but the bad one");
        let decode = of(Stage::Decode);
        assert_eq!((decode.items, decode.failures), (round * (SAMPLES - 1), round));
    }
    assert_eq!((of(Stage::Fetch).items, of(Stage::Fetch).bytes), (fetched.items, fetched.bytes));
    assert!(resources.memory_bytes().0 > 0);
    drop(held);
    assert_eq!(resources.memory_bytes().0, 0);
}

#[tokio::test]
async fn a_session_that_makes_no_sense_is_refused_with_its_values() {
    let fixture = FeedFixture::new(&[], TWO_EPOCHS);
    let resources = resources(PLENTY, None);
    let refused = |session: Session, rank| {
        let request = FeedRequest { session, rank, from: Position::START, slots: 0, slab: SlabKind::Private };
        RankFeed::start(&resources, request).unwrap_err().to_string()
    };
    assert!(refused(fixture.session(2), 2).contains("rank 2 is not below world 2"));
    assert!(refused(fixture.session(13), 2).contains("world 13 is more than the global batch of 12"));
    let mut huge = fixture.session(1);
    huge.global_batch = u32::MAX;
    assert!(refused(huge, 0).contains("a batch of 4294967295 samples takes"));
}

/// A log that a test reads.
#[derive(Clone, Default)]
struct Lines(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn log_lines_carry_the_ids_of_session_rank_and_batch_and_what_was_fetched_and_decoded() {
    let lines = Lines::default();
    let (writer, spans) = (lines.clone(), tracing_subscriber::fmt::format::FmtSpan::NEW);
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_span_events(spans);
    let log = log.with_ansi(false).with_writer(move || writer.clone());
    // The subscriber is that of all tests of this program: threads without one would switch spans off for the others.
    tracing::subscriber::set_global_default(log.finish()).expect("no other test has a log");
    let fixture = FeedFixture::new(&[7], "epochs = 1\nglobal_batch = 12\nmax_bad_fraction = 1.0");
    let session = Session { id: SessionId(4711), ..fixture.session(1) };
    let mut feed = start(&resources(PLENTY, None), &session, 0, Position::START);
    drain(&mut feed).await.unwrap();
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let rank = "session{session=4711 job=\"train\"}:rank{rank=0}:";
    let text: String = text.split_inclusive('\n').filter(|line| line.contains("session=4711")).collect();
    let has = |what: &[&str]| text.lines().any(|line| what.iter().all(|part| line.contains(part)));
    let second = format!("{rank}batch{{batch=0:12}}:");
    assert!(has(&[&format!("{second}decode{{samples=")]), "{text}");
    assert!(has(&[&format!("{second}fetch{{shard=\"0.tar\" block=")]), "{text}");
    assert!(has(&[rank, "batch{batch=0:", "bad sample", "sample=7"]), "{text}");

    // An import of functions, which happens before there is a batch, is the rank's.
    let function = "[[column]]\nname = \"tokens\"\nfrom = \"txt\"\ndecode = \"bytes\"\ntransform = \"captions:tokens\"";
    let fixture = FeedFixture::new(&[], &format!("epochs = 1\nglobal_batch = 12\n{function}"));
    let session = Session { id: SessionId(4712), ..fixture.session(1) };
    let transforms = Some(TransformSettings { python: "true".into(), ..TransformSettings::default() });
    let budget = Budget { cores: 2.0, memory_bytes: PLENTY, disk: None };
    let resources = Resources::with_access("test", budget, Access { transforms, ..Access::default() }).unwrap();
    drain(&mut start(&resources, &session, 0, Position::START)).await.unwrap_err();
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let line = text.lines().find(|line| line.contains("importing the job's functions")).expect("a line of the import");
    assert!(line.contains("session{session=4712 job=\"train\"}:rank{rank=0}:"), "{line}");
}
