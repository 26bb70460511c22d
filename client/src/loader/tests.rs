//! Tests of the loader over a source that the test fills.

use futures::StreamExt;
use parking_lot::Mutex;
use spdl_control::client::testing::job;
use spdl_insight::Transport;
use spdl_types::SessionId;
use spdl_wire::slab::Slab;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::{
    Batch, Blocking, ContentDigest, Serving, StateError, WaitClock,
    batch::tests::{SlotFiller, columns},
};

/// A source that yields what the test sends, and reports the calls of its methods to the test.
#[derive(Debug)]
struct TestSource {
    events: UnboundedReceiver<Result<SourceEvent, ClientError>>,
    reports: UnboundedSender<Option<Progress>>,
    clock: WaitClock,
    /// The session with the job as it is now, if that has changed.
    session: Arc<Mutex<Option<Arc<Session>>>>,
}

impl Source for TestSource {
    type Batch = Batch;
    type Error = ClientError;

    async fn next(&mut self) -> Result<SourceEvent, ClientError> {
        self.events.recv().await.expect("the test keeps the sender")
    }

    async fn explain(&mut self) -> String {
        "stage `decode` waits for coffee".into()
    }

    async fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        let _ = self.reports.send(Some(Progress { position: from, ..Progress::default() }));
        Ok(())
    }

    fn record_progress(&mut self, progress: Progress) {
        let _ = self.reports.send(Some(progress));
    }

    fn serving(&self) -> Serving {
        Serving { transport: Some(Transport::InProcess), home: Some("here".into()) }
    }

    fn wait_clock(&self) -> WaitClock {
        self.clock.clone()
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().clone()
    }

    fn most_held(&self) -> u32 {
        4
    }

    async fn close(&mut self) {
        let _ = self.reports.send(None);
    }
}

struct Bench {
    filler: SlotFiller,
    events: UnboundedSender<Result<SourceEvent, ClientError>>,
    reports: UnboundedReceiver<Option<Progress>>,
    session: Arc<Mutex<Option<Arc<Session>>>>,
}

impl Bench {
    fn new() -> (Self, Loader<TestSource>) {
        let (events, from_test) = unbounded_channel();
        let (to_test, reports) = unbounded_channel();
        let job = Job { columns: columns(), ..job() };
        let session = Session { id: SessionId(1), job, world: 1, global_batch: 24, start: Position::new(0, 48) };
        let now = Arc::default();
        let source =
            TestSource { events: from_test, reports: to_test, clock: WaitClock::default(), session: Arc::clone(&now) };
        let loader = Loader::new(source, Arc::new(session), 0, Duration::from_secs(60), Instant::now());
        let filler = SlotFiller::new(Slab::private(4, 1 << 14).unwrap(), 24);
        (Self { filler, events, reports, session: now }, loader)
    }

    fn put(&self, epoch: u64, offset: u64) {
        let batch = self.filler.batch(Position::new(epoch, offset), 24);
        self.events.send(Ok(SourceEvent::Batch(batch))).unwrap();
    }
}

#[tokio::test]
async fn position_state_and_receipt_follow_what_was_handed_over_and_not_what_is_ready() {
    let (mut bench, mut loader) = Bench::new();
    bench.put(0, 48);
    bench.put(0, 72);
    assert_eq!((loader.position(), loader.receipt()), (Position::new(0, 48), Receipt::default()));
    let first = loader.next().await.unwrap().unwrap();
    assert_eq!(loader.position(), Position::new(0, 72));
    assert_eq!(loader.state(), State::new(loader.job().fingerprint(), Position::new(0, 72)));
    assert_eq!(loader.receipt(), first.receipt());
    assert_eq!(bench.reports.recv().await.unwrap().unwrap().position, Position::new(0, 72));
    let second = loader.next().await.unwrap().unwrap();
    let mut both = first.receipt();
    both += second.receipt();
    assert_eq!(loader.receipt(), both);
    assert_ne!(first.content_digest(), ContentDigest::default());
    assert_eq!((loader.steps_per_epoch(), loader.steps_left()), (Some(4), 4));
}

#[tokio::test]
async fn the_end_is_none_for_ever_and_moves_the_position_there() {
    let (mut bench, mut loader) = Bench::new();
    bench.events.send(Ok(SourceEvent::End(Position::new(2, 0)))).unwrap();
    assert!(loader.next().await.unwrap().is_none());
    assert!(loader.next().await.unwrap().is_none());
    assert_eq!((loader.position(), loader.steps_left()), (Position::new(2, 0), 0));
    assert_eq!(bench.reports.recv().await.unwrap().unwrap().position, Position::new(2, 0));
    loader.close().await;
    assert_eq!(bench.reports.recv().await.unwrap(), None);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_explained_and_loses_nothing() {
    let (bench, mut loader) = Bench::new();
    for _ in 0..2 {
        let error = loader.next_within(Duration::from_millis(1)).await.unwrap_err();
        assert!(error.is_retryable() && error.hint().is_some());
        let text = error.to_string();
        assert!(["rank 0", "0:48", "waits for coffee"].iter().all(|part| text.contains(part)), "{text}");
    }
    bench.put(0, 48);
    assert_eq!(loader.next().await.unwrap().unwrap().from(), Position::new(0, 48));
}

#[tokio::test]
async fn repeated_batches_go_on_to_the_end_of_the_job_and_count_in_the_statistics_alone() {
    let (mut bench, mut loader) = Bench::new();
    loader.repeat_batches(2).unwrap();
    let steps = usize::try_from(loader.steps_left()).unwrap();
    bench.put(0, 48);
    bench.put(0, 72);
    let mut receipt = Receipt::default();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let batch = loader.next().await.unwrap().unwrap();
        receipt += batch.receipt();
        kept.push((batch.from(), batch.slot(), batch.content_digest()));
        assert!(bench.reports.recv().await.unwrap().is_some(), "they count");
    }
    let state = loader.state();
    assert_eq!(state.to_string().parse(), Ok(state), "nothing was repeated so far");
    let mut ends = Vec::new();
    for step in 2..steps {
        // The source has no more batches: a loader that asked it would wait.
        let batch = loader.next().await.unwrap().unwrap();
        assert_eq!((batch.from(), batch.slot(), batch.content_digest()), kept[step % 2]);
        if loader.ends_epoch(&batch) {
            ends.push(step);
        }
    }
    assert_eq!(steps, 6, "two batches of the first epoch, and four of the second");
    assert_eq!((ends, loader.steps_left(), loader.epoch()), (vec![5], 0, 2));
    assert!(loader.next().await.unwrap().is_none() && loader.next().await.unwrap().is_none());
    assert_eq!((loader.position(), loader.receipt()), (Position::new(0, 96), receipt));
    let stats = loader.stats();
    assert_eq!((stats.batches, stats.repeated_batches, stats.samples), (6, 4, 144));
    assert_eq!(loader.state().to_string().parse::<State>(), Err(StateError::RepeatedBatches));

    // Another pass: the source is not asked for it either.
    loader.go_to(Position::new(1, 72)).await.unwrap();
    assert_eq!((loader.steps_left(), loader.epoch()), (1, 1));
    assert!(loader.next().await.unwrap().is_some() && loader.next().await.unwrap().is_none());
    assert_eq!((loader.position(), loader.receipt()), (Position::new(0, 96), receipt));
    loader.close().await;
    assert_eq!(bench.reports.recv().await.unwrap(), None, "no progress was reported since");
}

#[tokio::test]
async fn batches_are_repeated_only_where_there_is_room_for_them_and_only_once() {
    let (bench, mut loader) = Bench::new();
    for (count, expected) in [(0, "is 0"), (5, "room for 4 batches")] {
        let error = loader.repeat_batches(count).unwrap_err().to_string();
        assert!(error.contains("`repeat_batches`") && error.contains(expected), "{error}");
    }
    loader.repeat_batches(4).unwrap();
    loader.repeat_batches(1).unwrap();
    bench.put(0, 48);
    let first = loader.next().await.unwrap().unwrap();
    assert!(loader.repeat_batches(2).unwrap_err().to_string().contains("was called before"));
    // Its slot is taken for as long as the loader or the caller has the batch.
    let slab = first.slab().clone();
    let number = first.slot();
    drop(first);
    assert!(slab.read(number).is_some());
    let again = loader.next().await.unwrap().unwrap();
    loader.close().await;
    assert_eq!((again.from(), again.slot()), (Position::new(0, 48), number));
    drop(again);
    assert!(slab.read(number).is_none());
}

#[tokio::test]
async fn an_error_of_the_source_ends_the_loader() {
    let (bench, mut loader) = Bench::new();
    let error = ClientError::from(spdl_control::client::RankError::Fault {
        home: "w1".into(),
        message: "no such shard".into(),
    });
    bench.events.send(Err(error.clone())).unwrap();
    assert_eq!(loader.next().await.unwrap_err(), error);
    assert_eq!(loader.next().await.unwrap_err(), ClientError::Closed);
}

#[tokio::test]
async fn a_stream_gives_the_batches_and_ends_after_an_error_that_ends_the_loader() {
    let (bench, mut loader) = Bench::new();
    bench.put(0, 48);
    bench.events.send(Err(ClientError::Closed)).unwrap();
    let items: Vec<_> = loader.stream().map(|item| item.map(|batch| batch.from())).collect().await;
    assert_eq!(items, [Ok(Position::new(0, 48)), Err(ClientError::Closed)]);
}

#[tokio::test]
async fn stats_count_what_was_delivered() {
    let (bench, mut loader) = Bench::new();
    assert_eq!(loader.stats().first_batch_s, None);
    bench.put(0, 48);
    let batch = loader.next().await.unwrap().unwrap();
    let stats = loader.stats();
    assert_eq!((stats.batches, stats.samples, stats.bytes), (1, 24, batch.bytes().len() as u64));
    assert_eq!(stats.serving.home.as_deref(), Some("here"));
    assert!(stats.first_batch_s.is_some());
}

#[tokio::test]
async fn a_wait_in_progress_is_in_every_statistic() {
    const WAIT: Duration = Duration::from_millis(1);
    let (mut bench, mut loader) = Bench::new();
    let seconds = |loader: &Loader<TestSource>| (loader.stats().waited_s, loader.stats().waited_since_first_s);
    loader.next_within(WAIT).await.unwrap_err();
    let (first_s, since_first_s) = seconds(&loader);
    assert!(first_s >= WAIT.as_secs_f64() && since_first_s == 0.0, "{first_s} {since_first_s}");
    bench.put(0, 48);
    loader.next().await.unwrap().unwrap();
    let progress = bench.reports.recv().await.unwrap().unwrap();
    assert!(progress.waited_ms >= 1, "{progress:?}");

    // Waits that end without a batch, by a timeout or because the caller drops the future, count too.
    let (before_s, _) = seconds(&loader);
    loader.next_within(WAIT).await.unwrap_err();
    let (timed_out_s, _) = seconds(&loader);
    assert!(timed_out_s >= before_s + WAIT.as_secs_f64(), "{timed_out_s} after {before_s}");
    tokio::time::timeout(WAIT, loader.next()).await.unwrap_err();
    let (dropped_s, since_first_s) = seconds(&loader);
    assert!(dropped_s >= timed_out_s + WAIT.as_secs_f64(), "{dropped_s} after {timed_out_s}");
    assert!(since_first_s >= 2.0 * WAIT.as_secs_f64(), "{since_first_s}");

    // Other tasks see the sum grow while a call waits, and only then.
    let clock = loader.source.wait_clock();
    assert_eq!(clock.total(), clock.total(), "the clock stands while no call waits");
    let settled = clock.total();
    let growing = async {
        while clock.total() < settled + WAIT {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        event = loader.next() => panic!("{event:?}"),
        () = growing => {}
    }
}

#[test]
fn a_blocking_loader_iterates_times_out_and_closes_its_source() {
    let (mut bench, loader) = Bench::new();
    let mut blocking = Blocking::start(1, async { Ok(loader) }).unwrap();
    bench.put(0, 48);
    assert_eq!(blocking.next().unwrap().unwrap().from(), Position::new(0, 48));
    let error = blocking.next_within(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    bench.events.send(Ok(SourceEvent::End(Position::new(2, 0)))).unwrap();
    assert!(blocking.next().is_none());
    assert_eq!(blocking.loader().position(), Position::new(2, 0));
    drop(blocking);
    let reports: Vec<_> = std::iter::from_fn(|| bench.reports.blocking_recv()).collect();
    assert_eq!(reports.last(), Some(&None));
}

#[tokio::test]
async fn a_blocking_loader_inside_a_runtime_is_an_error_and_dropping_it_there_is_fine() {
    let (bench, loader) = Bench::new();
    let started = Blocking::start(1, async { Ok(loader) });
    assert_eq!(started.unwrap_err(), ClientError::InsideRuntime);
    let (mut other, loader) = Bench::new();
    let mut blocking = std::thread::spawn(|| Blocking::start(1, async { Ok(loader) }).unwrap()).join().unwrap();
    assert_eq!(blocking.next_batch().unwrap_err(), ClientError::InsideRuntime);
    drop(blocking);
    assert_eq!(other.reports.recv().await, Some(None), "another thread closes the session");
    drop(bench);
}

#[tokio::test]
async fn a_loader_goes_to_a_position_with_a_new_receipt() {
    let (mut bench, mut loader) = Bench::new();
    bench.put(0, 48);
    loader.next().await.unwrap().unwrap();
    bench.events.send(Ok(SourceEvent::End(Position::new(2, 0)))).unwrap();
    assert!(loader.next().await.unwrap().is_none());
    loader.go_to(Position::new(1, 0)).await.unwrap();
    assert_eq!((loader.position(), loader.epoch(), loader.receipt()), (Position::new(1, 0), 1, Receipt::default()));
    loader.go_to(Position::START).await.unwrap();
    assert_eq!((loader.position(), loader.receipt()), (Position::START, Receipt::default()));
    let progress = std::iter::from_fn(|| bench.reports.try_recv().ok()).last().flatten().unwrap();
    assert_eq!(progress, Progress::default(), "the source hears of it");
    bench.put(0, 0);
    let first = loader.next().await.unwrap().unwrap();
    assert_eq!((loader.position(), loader.receipt()), (Position::new(0, 24), first.receipt()));
}

#[tokio::test]
async fn epochs_and_steps_are_those_of_the_job_as_it_is_also_before_the_next_batch() {
    let (bench, mut loader) = Bench::new();
    let end_after = |loader: &Loader<TestSource>, samples: u64| {
        let job = Job { total_samples: Some(samples), ..loader.job().clone() };
        *bench.session.lock() = Some(Arc::new(Session { job, ..loader.session().clone() }));
    };
    assert_eq!((loader.epochs(), loader.steps_left()), (2, 6));
    end_after(&loader, 150);
    assert_eq!((loader.epochs(), loader.steps_left()), (2, 4));
    bench.put(0, 48);
    bench.put(0, 72);
    let first = loader.next().await.unwrap().unwrap();
    assert!(!loader.ends_epoch(&first) && loader.epoch() == 0);
    // Ten samples of the second epoch fill no batch.
    end_after(&loader, 110);
    assert_eq!((loader.epochs(), loader.steps_left()), (1, 1));
    let last = loader.next().await.unwrap().unwrap();
    assert!(loader.ends_epoch(&last));
    assert_eq!((loader.epoch(), loader.epochs(), loader.steps_left()), (1, 1, 0));
    // The end is what the source says.
    end_after(&loader, 200);
    assert_eq!((loader.epoch(), loader.epochs(), loader.steps_left()), (1, 2, 4));
}

#[tokio::test]
async fn a_loader_that_an_error_ended_goes_nowhere() {
    let (bench, mut loader) = Bench::new();
    bench.events.send(Err(ClientError::Closed)).unwrap();
    loader.next().await.unwrap_err();
    assert!(matches!(loader.go_to(Position::START).await, Err(ClientError::Closed)));
}
