//! Schedules decoding: grants permits to batches, in the order that a [`SchedulingPolicy`] chooses.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use spdl_types::{Position, SessionId};
use tokio::sync::oneshot;

use super::progress::FeedProgress;

/// A batch that waits for a permit, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeCandidate {
    pub(crate) session: SessionId,
    /// Position at which the global batch begins.
    pub(crate) at: Position,
    /// Batches that the trainer can take before it needs this one.
    pub(crate) lead: u64,
    /// Number of its turn, from the order in which the batches asked; no two candidates have the same.
    pub(crate) ticket: u64,
}

/// A policy that chooses which batch is decoded next.
pub(crate) trait SchedulingPolicy: fmt::Debug + Send + Sync {
    /// Returns the index of the batch to decode next; `None` only if there is no candidate. May exchange the tickets of
    /// two batches, so that one takes the other's place in the queue.
    fn choose(&self, candidates: &mut [DecodeCandidate]) -> Option<usize>;
}

/// Chooses the batch whose trainer is nearest to starving. Sessions that are equally near are served in the order in
/// which they asked, as their positions cannot be compared. Within a session, the rank that is furthest behind in the
/// stream is served first, as a step of the trainers ends only when the last rank has its batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NearestToStarving;

impl SchedulingPolicy for NearestToStarving {
    fn choose(&self, candidates: &mut [DecodeCandidate]) -> Option<usize> {
        let all = || candidates.iter().enumerate();
        let (oldest, nearest) = all().min_by_key(|(_, one)| (one.lead, one.ticket))?;
        let alike = |one: &DecodeCandidate| (one.lead, one.session) == (nearest.lead, nearest.session);
        let (first, _) = all().filter(|(_, one)| alike(one)).min_by_key(|(_, one)| (one.at, one.ticket))?;
        // The chosen batch goes in place of the session's oldest one, which takes over its ticket.
        candidates[oldest].ticket = candidates[first].ticket;
        Some(first)
    }
}

/// Grants permits to decode, counted in samples. The decoding threads always have work queued, but so little that an
/// urgent batch does not wait long behind others.
#[derive(Debug)]
pub(crate) struct DecodeScheduler {
    policy: Box<dyn SchedulingPolicy>,
    state: Mutex<SchedulerState>,
}

#[derive(Debug)]
struct SchedulerState {
    /// Samples that may be queued for decoding before further batches have to wait for a permit.
    limit: usize,
    running: usize,
    next_ticket: u64,
    /// The waiting batches, as the policy sees them; the one at index `i` is `waiting[i]`.
    candidates: Vec<DecodeCandidate>,
    waiting: Vec<WaitingBatch>,
}

/// The batch that asks for a permit.
#[derive(Clone, Debug)]
pub(crate) struct DecodePermitRequest {
    /// Progress of the batch's rank.
    pub(crate) progress: Arc<FeedProgress>,
    pub(crate) sequence: u64,
    pub(crate) session: SessionId,
    pub(crate) at: Position,
}

#[derive(Debug)]
struct WaitingBatch {
    lead: Lead,
    samples: usize,
    permit: oneshot::Sender<DecodePermit>,
}

/// How far a consumer is from needing a batch.
#[derive(Debug)]
enum Lead {
    /// That of a rank, to batch number `sequence`.
    OfRank { progress: Arc<FeedProgress>, sequence: u64 },
    /// The batch is for another worker, and comes after those of all ranks of this worker.
    Last,
}

impl Lead {
    fn batches(&self) -> u64 {
        match self {
            Self::OfRank { progress, sequence } => progress.lead(*sequence),
            Self::Last => u64::MAX,
        }
    }
}

impl SchedulerState {
    /// Removes and returns the batch that the policy chooses.
    fn take_next(&mut self, policy: &dyn SchedulingPolicy) -> Option<WaitingBatch> {
        // Reads each lead once, as trainers free slots meanwhile.
        for (candidate, WaitingBatch { lead, .. }) in self.candidates.iter_mut().zip(&self.waiting) {
            candidate.lead = lead.batches();
        }
        let chosen = policy.choose(&mut self.candidates)?;
        self.candidates.swap_remove(chosen);
        Some(self.waiting.swap_remove(chosen))
    }
}

/// The permission to decode a number of samples; returned to the scheduler when dropped.
#[derive(Debug)]
pub(crate) struct DecodePermit {
    scheduler: Arc<DecodeScheduler>,
    samples: usize,
    left: AtomicUsize,
    /// The scheduler's limit. While at least this many samples are left, no other batch can get a permit.
    limit: usize,
}

impl DecodePermit {
    /// Counts samples as done. Near the end of a permit the next permits are granted, so that no thread idles until
    /// another has decoded the last sample.
    pub(crate) fn finish(&self, samples: usize) {
        let before = self.left.fetch_sub(samples, Ordering::Relaxed);
        let left = before - samples;
        if left < self.limit {
            // The first sample below the limit also gives back all samples before it.
            let held = if before >= self.limit { self.samples } else { before };
            self.give_back(held - left);
        }
    }

    fn give_back(&self, samples: usize) {
        self.scheduler.state.lock().running -= samples;
        self.scheduler.grant();
    }
}

impl Drop for DecodePermit {
    fn drop(&mut self) {
        let left = *self.left.get_mut();
        self.give_back(if left < self.limit { left } else { self.samples });
    }
}

impl DecodeScheduler {
    /// Creates a scheduler that lets `limit` samples be queued for decoding.
    pub(crate) fn new(policy: impl SchedulingPolicy + 'static, limit: usize) -> Arc<Self> {
        let (candidates, waiting) = (Vec::new(), Vec::new());
        let state = Mutex::new(SchedulerState { limit, running: 0, next_ticket: 0, candidates, waiting });
        Arc::new(Self { policy: Box::new(policy), state })
    }

    /// Waits for a permit to decode `samples` samples of a batch.
    pub(crate) async fn take(self: &Arc<Self>, request: DecodePermitRequest, samples: usize) -> DecodePermit {
        let DecodePermitRequest { progress, sequence, session, at } = request;
        self.wait(session, at, Lead::OfRank { progress, sequence }, samples).await
    }

    /// Waits for a permit to decode `samples` samples for another worker.
    pub(crate) async fn take_for_other(self: &Arc<Self>, samples: usize) -> DecodePermit {
        self.wait(SessionId(u64::MAX), Position::START, Lead::Last, samples).await
    }

    async fn wait(self: &Arc<Self>, session: SessionId, at: Position, lead: Lead, samples: usize) -> DecodePermit {
        let (permit, granted) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.candidates.push(DecodeCandidate { session, at, lead: 0, ticket });
            state.waiting.push(WaitingBatch { lead, samples, permit });
        }
        self.grant();
        granted.await.expect("a turn that is waited for is granted in the end")
    }

    /// Returns the number of samples that are decoded or wait for it.
    pub(crate) fn samples(&self) -> usize {
        let state = self.state.lock();
        let waiting = state.waiting.iter().filter(|batch| !batch.permit.is_closed());
        state.running + waiting.map(|batch| batch.samples).sum::<usize>()
    }

    fn grant(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            if state.running >= state.limit {
                return;
            }
            let Some(waiting) = state.take_next(&*self.policy) else { return };
            if waiting.permit.is_closed() {
                continue;
            }
            let (samples, limit) = (waiting.samples, state.limit);
            state.running += samples;
            drop(state);
            let permit = DecodePermit { scheduler: self.clone(), samples, left: AtomicUsize::new(samples), limit };
            // If the caller has stopped waiting, the permit comes back here; its drop frees its samples for the next
            // one.
            drop(waiting.permit.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::FutureExt;

    use super::*;

    /// The progress of a rank that has freed `freed` batches.
    fn rank(freed: u64) -> Arc<FeedProgress> {
        let progress = FeedProgress::new(Instant::now(), 1, Arc::default()).0;
        (0..freed).for_each(|_| progress.free(0));
        Arc::new(progress)
    }

    fn request(progress: &Arc<FeedProgress>, sequence: u64) -> DecodePermitRequest {
        let at = Position { epoch: 0, offset: 64 * sequence };
        DecodePermitRequest { progress: progress.clone(), sequence, session: SessionId(1), at }
    }

    /// A request of a rank whose trainer can take this many batches before it.
    fn with_lead(lead: u64) -> DecodePermitRequest {
        request(&rank(0), lead)
    }

    #[test]
    fn the_policy_gives_the_permit_of_a_session_to_its_rank_that_is_furthest_behind() {
        let candidate = |session, offset, lead, ticket| DecodeCandidate {
            session: SessionId(session),
            at: Position { epoch: 0, offset },
            lead,
            ticket,
        };
        let mut candidates =
            [candidate(1, 64, 1, 0), candidate(1, 128, 0, 1), candidate(2, 0, 0, 2), candidate(1, 64, 0, 3)];
        assert_eq!(NearestToStarving.choose(&mut candidates), Some(3), "not the session that asked later");
        assert_eq!(candidates[1].ticket, 3, "its rank that is ahead waits behind the other session");
        assert_eq!(NearestToStarving.choose(&mut candidates[..3]), Some(2));
        assert_eq!(NearestToStarving.choose(&mut []), None);
    }

    async fn order_of(requests: Vec<DecodePermitRequest>) -> Vec<usize> {
        let scheduler = DecodeScheduler::new(NearestToStarving, 1);
        let running = scheduler.take(with_lead(0), 1).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |index: usize, request: DecodePermitRequest| {
            let (scheduler, order) = (&scheduler, order.clone());
            async move {
                let _turn = scheduler.take(request, 1).await;
                order.lock().push(index);
            }
        };
        let mut waiting: Vec<_> = requests.into_iter().enumerate().map(|(at, one)| Box::pin(note(at, one))).collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
        drop(running);
        futures::future::join_all(waiting).await;
        Arc::into_inner(order).expect("all have had their turn").into_inner()
    }

    #[tokio::test]
    async fn of_ranks_equally_near_to_starving_the_one_furthest_behind_goes_first() {
        let ahead = rank(7);
        let behind = rank(5);
        // The second rank became ready later and has to catch up by two batches.
        let order =
            order_of(vec![request(&ahead, 7), request(&ahead, 8), request(&behind, 5), request(&behind, 6)]).await;
        assert_eq!(order, [2, 0, 3, 1]);
    }

    #[tokio::test]
    async fn sessions_are_served_round_robin_however_far_they_are() {
        let of = |session, offset| DecodePermitRequest {
            session: SessionId(session),
            at: Position { epoch: 0, offset },
            ..with_lead(0)
        };
        assert_eq!(order_of(vec![of(1, 900), of(2, 100), of(1, 800), of(2, 0)]).await, [2, 3, 0, 1]);
    }

    #[tokio::test]
    async fn a_trainer_that_went_on_meanwhile_is_nearer_to_starving() {
        let scheduler = DecodeScheduler::new(NearestToStarving, 1);
        let running = scheduler.take(with_lead(0), 1).await;
        let (slow, quick) = (rank(0), rank(0));
        let mut of_slow = Box::pin(scheduler.take(request(&slow, 1), 1));
        let mut of_quick = Box::pin(scheduler.take(request(&quick, 2), 1));
        assert!(of_slow.as_mut().now_or_never().is_none() && of_quick.as_mut().now_or_never().is_none());
        quick.free(0);
        quick.free(1);
        drop(running);
        assert!(of_slow.as_mut().now_or_never().is_none());
        drop(of_quick.as_mut().now_or_never().expect("its trainer has none left"));
        of_slow.await;
    }

    #[tokio::test]
    async fn the_batch_that_is_wanted_soonest_goes_first() {
        let scheduler = DecodeScheduler::new(NearestToStarving, 8);
        let running = scheduler.take(with_lead(9), 8).await;
        let mut far = Box::pin(scheduler.take(with_lead(3), 8));
        let mut near = Box::pin(scheduler.take(with_lead(1), 8));
        let mut given_up = Box::pin(scheduler.take(with_lead(0), 8));
        assert!(far.as_mut().now_or_never().is_none());
        assert!(near.as_mut().now_or_never().is_none());
        assert!(given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        drop(running);
        let permit = near.await;
        assert!(far.as_mut().now_or_never().is_none());
        drop(permit);
        far.await;
        assert_eq!(scheduler.state.lock().running, 0);
    }

    #[tokio::test]
    async fn the_next_permit_is_granted_when_the_last_one_is_nearly_used_up() {
        let scheduler = DecodeScheduler::new(NearestToStarving, 4);
        let running = scheduler.take(with_lead(0), 10).await;
        let mut next = Box::pin(scheduler.take(with_lead(0), 10));
        for _ in 0..6 {
            running.finish(1);
            assert!(next.as_mut().now_or_never().is_none(), "enough is left for all threads");
        }
        running.finish(1);
        let next = next.as_mut().now_or_never().expect("three samples are less than four places");
        assert_eq!(scheduler.state.lock().running, 13);
        running.finish(1);
        drop(running);
        assert_eq!(scheduler.state.lock().running, 10);
        drop(next);
        let few = scheduler.take(with_lead(0), 2).await;
        few.finish(1);
        assert_eq!(scheduler.state.lock().running, 1);
        drop(few);
        assert_eq!(scheduler.state.lock().running, 0);
    }

    #[tokio::test]
    async fn a_permit_that_ends_early_gives_everything_back_however_much_is_left() {
        for limit in 1..6 {
            for finished in 0..=10 {
                let scheduler = DecodeScheduler::new(NearestToStarving, limit);
                let permit = scheduler.take(with_lead(0), 10).await;
                (0..finished).for_each(|_| permit.finish(1));
                drop(permit);
                let running = scheduler.state.lock().running;
                assert_eq!(running, 0, "limit {limit}, {finished} of 10 samples finished");
            }
        }
    }

    #[tokio::test]
    async fn samples_that_are_done_together_count_as_one_by_one() {
        for (limit, first, second) in (1..14).flat_map(|limit| [(limit, 0, 10), (limit, 3, 4), (limit, 7, 3)]) {
            let running = async |pieces: &[usize]| {
                let scheduler = DecodeScheduler::new(NearestToStarving, limit);
                let permit = scheduler.take(with_lead(0), 10).await;
                pieces.iter().for_each(|samples| permit.finish(*samples));
                let before = scheduler.state.lock().running;
                drop(permit);
                (before, scheduler.state.lock().running)
            };
            let single = running(&vec![1; first + second]).await;
            assert_eq!(running(&[first, second]).await, single, "limit {limit}: {first} and {second} of 10");
            assert_eq!(single.1, 0);
        }
    }

    #[tokio::test]
    async fn small_batches_share_the_threads() {
        let scheduler = DecodeScheduler::new(NearestToStarving, 8);
        let _held = [
            scheduler.take(with_lead(0), 3).await,
            scheduler.take(with_lead(0), 3).await,
            scheduler.take(with_lead(0), 3).await,
        ];
        assert!(scheduler.take(with_lead(0), 3).now_or_never().is_none(), "nine samples are enough for eight places");
    }
}
