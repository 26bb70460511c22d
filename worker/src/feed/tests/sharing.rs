//! Tests of ranks of different sessions that share decoded samples.

use std::{collections::BTreeMap, time::Duration};

use spdl_control::messages::Session;
use spdl_job::{BytesColumn, ColumnKind};
use spdl_types::SampleId;

use super::{fixture::read_batch, *};

const JOB: &str = "epochs = 2\nglobal_batch = 12\nmax_bad_fraction = 1.0";

fn session(fixture: &FeedFixture, id: u64, name: &str) -> Session {
    let session = fixture.session(1);
    let job = spdl_job::Job { name: name.to_owned(), ..session.job.clone() };
    Session { id: SessionId(id), job, ..session }
}

/// What a rank has got.
#[derive(Default)]
struct Received {
    seen: BTreeMap<(Position, u32), Seen>,
    held: Vec<u32>,
}

impl Received {
    /// Takes the next batch and keeps its slot. Returns false at the end.
    async fn take(&mut self, feed: &mut RankFeed) -> bool {
        match feed.next().await.unwrap() {
            FeedEvent::Filled { slot, used_bytes, .. } => {
                read_batch(feed.slab(), feed.layout(), slot, used_bytes, &mut self.seen);
                self.held.push(slot);
                true
            }
            FeedEvent::End { .. } => false,
        }
    }

    /// Gives the oldest slot back.
    fn free(&mut self, feed: &RankFeed) {
        if !self.held.is_empty() {
            feed.free(self.held.remove(0)).unwrap();
        }
    }
}

/// A rank of each of two sessions.
struct Pair {
    feeds: [RankFeed; 2],
    received: [Received; 2],
}

impl Pair {
    /// Starts two ranks. The second holds all of its slots until the first has come past them.
    async fn start(resources: &Arc<Resources>, sessions: &[Session; 2]) -> Self {
        let [mut first, mut second] = [Received::default(), Received::default()];
        let mut ahead = start(resources, &sessions[0], 0, Position::START);
        assert!(first.take(&mut ahead).await);
        let mut behind = start(resources, &sessions[1], 0, Position::START);
        for _ in 0..behind.slab().slots() {
            assert!(second.take(&mut behind).await);
        }
        for _ in 0..=second.held.len() {
            first.free(&ahead);
            first.take(&mut ahead).await;
        }
        Self { feeds: [ahead, behind], received: [first, second] }
    }

    /// Feeds both to the end, the second batch by batch after the first.
    async fn follow(self) -> [BTreeMap<(Position, u32), Seen>; 2] {
        let Self { feeds: [mut ahead, mut behind], received: [mut first, mut second] } = self;
        loop {
            second.free(&behind);
            let has_more = second.take(&mut behind).await;
            first.free(&ahead);
            first.take(&mut ahead).await;
            if !has_more {
                return [first.seen, second.seen];
            }
        }
    }
}

/// Feeds a rank of each session to the end, so that the second takes what the first has decoded.
async fn follow(resources: &Arc<Resources>, sessions: &[Session; 2]) -> [BTreeMap<(Position, u32), Seen>; 2] {
    Pair::start(resources, sessions).await.follow().await
}

/// Waits until something is kept, or nothing: tasks of ranks go on, and end a moment after their ranks are dropped.
async fn becomes_kept(resources: &Resources, is_kept: bool) {
    let becomes = async {
        while (resources.sharing.stats().bytes > 0) != is_kept {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let minute = Duration::from_secs(60);
    tokio::time::timeout(minute, becomes).await.unwrap_or_else(|_| panic!("{:?}", resources.sharing.stats()));
}

/// Waits until nothing is kept and all memory is free, which takes a moment longer.
async fn all_is_given_back(resources: &Resources) {
    becomes_kept(resources, false).await;
    let freed = async {
        while resources.memory.slots.is_short() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), freed).await.expect("the memory of what is given back is free");
}

async fn alone(session: &Session) -> BTreeMap<(Position, u32), Seen> {
    run(&resources(PLENTY, None), session, Position::START).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_takes_the_samples_that_one_of_another_session_has_decoded() {
    let fixture = FeedFixture::new(&[], JOB);
    let resources = resources(PLENTY, None);
    let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    let expected = alone(&sessions[0]).await;
    for received in follow(&resources, &sessions).await {
        assert!(received == expected);
    }
    let stats = resources.sharing.stats();
    assert!(stats.samples.taken >= 12, "at least the first batch that was announced: {stats:?}");
    assert!(stats.samples.kept >= stats.samples.taken, "{stats:?}");
    all_is_given_back(&resources).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_of_one_session_and_other_seeds_have_nothing_to_share() {
    let fixture = FeedFixture::new(&[], JOB);
    let resources = resources(PLENTY, None);
    let (seen, _) = run(&resources, &fixture.session(2), Position::START).await.unwrap();
    assert!(seen == alone(&fixture.session(1)).await);
    let mut sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    sessions[1].job.seed += 1;
    let [first, second] = follow(&resources, &sessions).await;
    assert!(first == seen && second == alone(&sessions[1]).await);
    assert_eq!(resources.sharing.stats(), SharingStats::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_share_the_columns_that_they_have_in_common() {
    let fixture = FeedFixture::new(&[], JOB);
    let resources = resources(PLENTY, None);
    let mut sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    sessions[1].job.columns[1].kind = ColumnKind::Bytes(BytesColumn { max_bytes: 2_000 });
    for (received, session) in follow(&resources, &sessions).await.into_iter().zip(&sessions) {
        assert!(received == alone(session).await);
    }
    let stats = resources.sharing.stats();
    assert!(stats.samples.taken_in_part >= 12 && stats.samples.taken == 0, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_samples_are_bad_for_each_rank_and_reported_once_for_each_job() {
    let bad = [3, 50, 51, 119];
    for policy in ["substitute", "mask"] {
        let fixture = FeedFixture::new(&bad, &format!("bad_samples = \"{policy}\"\n{JOB}"));
        let resources = resources(PLENTY, None);
        let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
        let expected = alone(&sessions[0]).await;
        for received in follow(&resources, &sessions).await {
            assert!(received == expected, "{policy}");
        }
        assert!(resources.sharing.stats().samples.taken > 0);
        // Jobs with the same samples have one ledger, and are known by their names.
        let unreported = resources.decoding.bad.lock().unreported(100);
        let mut reported: Vec<_> = unreported.iter().map(|bad| (bad.job.as_str(), bad.sample)).collect();
        reported.sort_unstable();
        let of_job = |job| bad.map(move |id| (job, SampleId(id)));
        assert_eq!(reported, ["first", "second"].map(of_job).concat(), "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_whose_trainer_takes_nothing_delays_nobody_and_leaves_nothing_behind() {
    let fixture = FeedFixture::new(&[], JOB);
    let resources = resources(PLENTY, None);
    let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    let [mut first, mut second] = [Received::default(), Received::default()];
    let mut pulled = start(&resources, &sessions[0], 0, Position::START);
    assert!(first.take(&mut pulled).await);
    let mut stalled = start(&resources, &sessions[1], 0, Position::START);
    assert!(second.take(&mut stalled).await);
    first.free(&pulled);
    first.seen.append(&mut drain(&mut pulled).await.unwrap().0);
    assert!(first.seen == alone(&sessions[0]).await);
    let stats = resources.sharing.stats();
    assert!(stats.samples.kept > 0, "the samples that the other rank has announced: {stats:?}");
    assert!(stats.bytes <= resources.budget().shares().pool_bytes / 8, "{stats:?}");
    drop((pulled, stalled));
    all_is_given_back(&resources).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_is_given_back_though_no_rank_goes_on() {
    let fixture = FeedFixture::new(&[], JOB);
    let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    let resources = resources(PLENTY, None);
    let pair = Pair::start(&resources, &sessions).await;
    becomes_kept(&resources, true).await;
    // Once both are idle.
    all_is_given_back(&resources).await;
    let expected = alone(&sessions[0]).await;
    for received in pair.follow().await {
        assert!(received == expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_memory_gets_that_of_shared_samples_at_once_and_nothing_is_kept_meanwhile() {
    let fixture = FeedFixture::new(&[], JOB);
    let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    let resources = resources(PLENTY, None);
    let pair = Pair::start(&resources, &sessions).await;
    becomes_kept(&resources, true).await;
    resources.memory.slots.lend(resources.budget().shares().pool_bytes);
    all_is_given_back(&resources).await;
    let kept = resources.sharing.stats().samples.kept;
    let expected = alone(&sessions[0]).await;
    for received in pair.follow().await {
        assert!(received == expected);
    }
    assert_eq!(resources.sharing.stats().samples.kept, kept, "there was no memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_that_find_no_memory_are_decoded_by_each() {
    let fixture = FeedFixture::new(&[], JOB);
    // An eighth of it is less than the step in which memory is reserved.
    let resources = resources(MIN_MEMORY_BYTES, None);
    let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
    let expected = alone(&sessions[0]).await;
    for received in follow(&resources, &sessions).await {
        assert!(received == expected);
    }
    let stats = resources.sharing.stats();
    assert!(stats.refused > 0 && stats.samples.taken == 0 && stats.bytes == 0, "{stats:?}");
}
