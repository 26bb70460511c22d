//! Tests of ranks of different sessions that share decoded samples.

use std::collections::BTreeMap;

use spdl_core::{
    SampleId,
    job::{BytesColumn, ColumnKind},
    messages::Session,
};

use super::{fixture::read_batch, *};

const JOB: &str = "epochs = 2\nglobal_batch = 12\nmax_bad_fraction = 1.0";

fn session(fixture: &FeedFixture, id: u64, name: &str) -> Session {
    let session = fixture.session(1);
    let job = spdl_core::job::Job { name: name.to_owned(), ..session.job.clone() };
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

/// Feeds a rank of each session to the end. The second rank holds all of its slots until the first has come past them, and then
/// follows it batch by batch.
async fn follow(resources: &Arc<Resources>, sessions: &[Session; 2]) -> [BTreeMap<(Position, u32), Seen>; 2] {
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

/// Waits until nothing is kept: the tasks of ranks that are dropped end a moment later.
async fn all_is_given_back(resources: &Resources) {
    let given_back = async {
        while resources.sharing().bytes > 0 {
            tokio::task::yield_now().await;
        }
    };
    let minute = std::time::Duration::from_secs(60);
    tokio::time::timeout(minute, given_back).await.unwrap_or_else(|_| panic!("{:?}", resources.sharing()));
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
    let stats = resources.sharing();
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
    assert_eq!(resources.sharing(), SharingStats::default());
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
    let stats = resources.sharing();
    assert!(stats.samples.taken_in_part >= 12 && stats.samples.taken == 0, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_samples_are_bad_for_each_rank_and_reported_once() {
    let bad = [3, 50, 51, 119];
    for policy in ["substitute", "mask"] {
        let fixture = FeedFixture::new(&bad, &format!("bad_samples = \"{policy}\"\n{JOB}"));
        let resources = resources(PLENTY, None);
        let sessions = [session(&fixture, 1, "first"), session(&fixture, 2, "second")];
        let expected = alone(&sessions[0]).await;
        for received in follow(&resources, &sessions).await {
            assert!(received == expected, "{policy}");
        }
        assert!(resources.sharing().samples.taken > 0);
        // Jobs with the same samples have one ledger.
        let mut reported: Vec<SampleId> = resources.bad_samples(100).iter().map(|sample| sample.sample).collect();
        reported.sort_unstable();
        assert_eq!(reported, bad.map(SampleId), "{policy}");
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
    let stats = resources.sharing();
    assert!(stats.samples.kept > 0, "the samples that the other rank has announced: {stats:?}");
    assert!(stats.bytes <= resources.budget().shares().pool_bytes / 8, "{stats:?}");
    drop((pulled, stalled));
    all_is_given_back(&resources).await;
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
    let stats = resources.sharing();
    assert!(stats.refused > 0 && stats.samples.taken == 0 && stats.bytes == 0, "{stats:?}");
}
