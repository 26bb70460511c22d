//! What must be true, seen from outside: it knows the plan, what was asked and answered, and what trainers were handed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spdl_coordinator::core::{Change, Durable};
use spdl_shard::{
    Position, Receipt, SampleId,
    job::{BadSamples, EpochEnd},
    order::{BatchParams, ItemKind},
};
use spdl_wire::{
    layout::entry_flags,
    messages::{FromCoordinator, Join, RankBeat, Refusal, Session, SessionId, Start, ToCoordinator},
};

use crate::{
    coverage::Coverage,
    scenario::{Dataset, Scenario},
    slab::{Content, Entry},
};

/// How long ranks go on at most that have to learn that they may not.
const SETTLED_US: u64 = 30_000_000;

/// Job and run.
type RunKey = (String, String);

/// A session as its answers have described it.
#[derive(Debug)]
struct Known {
    run: RunKey,
    world: u32,
    start: Position,
    launch: Option<String>,
    /// What each rank has acknowledged, and the nonce that it joined with.
    ranks: BTreeMap<u32, (Position, u64)>,
    /// When each rank was last heard by the coordinator that runs, by its clock; `None` once it has left.
    heard_ms: BTreeMap<u32, Option<u64>>,
}

impl Known {
    /// The last position that every rank had acknowledged.
    fn acknowledged(&self) -> Position {
        let everyone = self.ranks.len() == self.world as usize;
        self.ranks.values().map(|(at, _)| *at).min().filter(|_| everyone).unwrap_or(self.start)
    }
}

/// Where a client is in its stream.
#[derive(Debug)]
struct Cursor {
    /// Sessions that replace each other after a coordinator forgot one are one: the first.
    stream: (u32, SessionId),
    rank: u32,
    world: u32,
    job: String,
    params: BatchParams,
    next: Position,
}

/// What a coordinator must know, as it was started and asked: others may know better meanwhile.
#[derive(Debug, Default)]
struct View {
    known: BTreeMap<SessionId, Known>,
    /// Acknowledged and not durable yet, since when.
    lagging: VecDeque<(u64, SessionId, u32, Position)>,
    durable: BTreeMap<(SessionId, u32), Position>,
}

impl View {
    /// The newest session of a run.
    fn newest(&self, run: &RunKey) -> Option<(SessionId, &Known)> {
        self.known.iter().rev().find(|(_, known)| known.run == *run).map(|(id, known)| (*id, known))
    }

    /// Whether a session has a successor.
    fn is_superseded(&self, id: SessionId) -> bool {
        self.known.get(&id).and_then(|known| self.newest(&known.run)).is_some_and(|(newest, _)| newest > id)
    }
}

/// What the state has had of a session.
#[derive(Debug, Default)]
struct Kept {
    is_superseded: bool,
    is_deleted: bool,
    acknowledged: BTreeMap<u32, Position>,
}

/// A job that was submitted.
#[derive(Debug, Default)]
struct Submitted {
    fate: Fate,
    /// How often that was decided about.
    decisions: u64,
}

/// Whether a job is there, as the admin was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    /// Something was decided, and not told yet; or the state was lost.
    #[default]
    Open,
    There,
    Removed {
        since_us: u64,
    },
}

/// A bad sample that a worker tells of: of which job, and when that was decided about last.
#[derive(Debug)]
pub(crate) struct Told {
    era: u32,
    decisions: u64,
    job: String,
    sample: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// The coordinator's lost states.
    era: u32,
    liveness_ms: u64,
    /// By coordinator.
    views: BTreeMap<usize, View>,
    /// What is in the state.
    kept: BTreeMap<SessionId, Kept>,
    /// Sessions that clients take part in: of which run, how many ranks, and from where.
    adopted: BTreeMap<SessionId, (RunKey, u32, Position)>,
    /// The same, and those of jobs that were removed.
    given: BTreeMap<SessionId, (RunKey, u32, Position)>,
    bad_heard: BTreeSet<(String, u64)>,
    /// Jobs that were submitted.
    jobs: BTreeMap<String, Submitted>,
    /// The newest session of each run that has delivered, in which era, and since when.
    delivering: BTreeMap<RunKey, ((u32, SessionId), u64)>,
    cursors: BTreeMap<usize, Cursor>,
    /// Every (epoch, offset) that was delivered, and the sample.
    delivered: BTreeMap<(u32, SessionId), BTreeMap<Position, u64>>,
}

impl Oracle {
    pub(crate) fn new(liveness_ms: u64) -> Self {
        Self { liveness_ms, ..Self::default() }
    }

    /// What a coordinator starts from.
    pub(crate) fn coordinator_started(&mut self, at: usize, state: &Durable) -> Result<(), String> {
        let mut view = View::default();
        for session in &state.sessions {
            let ranks = session.ranks.iter().map(|rank| (rank.rank, (rank.acknowledged, rank.nonce)));
            for rank in &session.ranks {
                view.durable.insert((session.id, rank.rank), rank.acknowledged);
            }
            let known = Known {
                run: (session.job.clone(), session.run.clone()),
                world: session.world,
                start: session.start,
                launch: session.launch.clone(),
                ranks: ranks.collect(),
                heard_ms: session.ranks.iter().filter(|rank| rank.left).map(|rank| (rank.rank, None)).collect(),
            };
            view.known.insert(session.id, known);
        }
        for (id, (run, ..)) in &self.adopted {
            // The oldest of a run are forgotten.
            let oldest = view.known.iter().find(|(_, known)| known.run == *run).map(|(oldest, _)| oldest);
            if !view.known.contains_key(id) && oldest.is_none_or(|oldest| id > oldest) {
                return Err(format!("session {} of {run:?} was answered and is not durable", id.0));
            }
        }
        self.views.insert(at, view);
        for record in &state.jobs {
            let of_it = self.bad_heard.iter().filter(|(job, _)| *job == record.job.name);
            let allowed = record.job.max_bad_fraction * record.job.samples as f64;
            if of_it.count() as f64 > allowed && record.failed.is_none() {
                return Err(format!("job `{}` has failed, and that is not durable", record.job.name));
            }
        }
        let kept: BTreeSet<(String, u64)> =
            state.bad_samples.iter().map(|bad| (bad.job.clone(), bad.sample.0)).collect();
        match self.bad_heard.difference(&kept).next() {
            Some(lost) => Err(format!("bad sample {lost:?} was heard of and is not durable")),
            None => Ok(()),
        }
    }

    pub(crate) fn coordinator_wiped(&mut self) {
        self.era += 1;
        self.views.clear();
        self.kept.clear();
        self.adopted.clear();
        self.given.clear();
        self.bad_heard.clear();
        for job in self.jobs.values_mut() {
            job.fate = Fate::Open;
            job.decisions += 1;
        }
    }

    /// A rank is told its session, which no other coordinator tells otherwise.
    pub(crate) fn told(&mut self, run: &RunKey, session: &Session) -> Result<(), String> {
        let told = (run.clone(), session.world, session.start);
        if matches!(self.fate(&run.0), Fate::Removed { .. }) {
            return Err(format!("session {} of {run:?} is joined, and its job was removed", session.id.0));
        }
        if let Some(before) = self.given.get(&session.id).filter(|before| **before != told) {
            return Err(format!("session {} is given twice: {before:?} and {told:?}", session.id.0));
        }
        // Where its removal was decided meanwhile it is not kept for long.
        if self.fate(&run.0) == Fate::There {
            self.adopted.insert(session.id, told.clone());
        }
        self.given.insert(session.id, told);
        Ok(())
    }

    /// The state has taken changes, all at once: nothing that was there before comes back.
    pub(crate) fn applied(&mut self, changes: &[Change]) -> Result<(), String> {
        let last: BTreeMap<SessionId, &Change> = changes
            .iter()
            .filter_map(|change| match change {
                Change::PutSession(record) => Some((record.id, change)),
                Change::DeleteSession(id) => Some((*id, change)),
                _ => None,
            })
            .collect();
        for (id, change) in last {
            let kept = self.kept.entry(id).or_default();
            let Change::PutSession(record) = change else {
                kept.is_deleted = true;
                continue;
            };
            let is_superseded = record.superseded_by.is_some();
            if kept.is_deleted || (kept.is_superseded && !is_superseded) {
                return Err(format!("an older write of session {} came over a later one", id.0));
            }
            kept.is_superseded = is_superseded;
            let before = kept.acknowledged.len();
            for rank in &record.ranks {
                let at = kept.acknowledged.entry(rank.rank).or_insert(rank.acknowledged);
                if *at > rank.acknowledged {
                    return Err(format!("what rank {} of session {} had acknowledged went back", rank.rank, id.0));
                }
                *at = rank.acknowledged;
            }
            if record.ranks.len() < before {
                return Err(format!("a rank of session {} is gone from the state", id.0));
            }
        }
        Ok(())
    }

    pub(crate) const fn era(&self) -> u32 {
        self.era
    }

    /// Told to the coordinator in that era, and heard by it.
    pub(crate) fn bad_samples_heard(&mut self, told: Vec<Told>) {
        for Told { era, decisions, job, sample } in told {
            let now = self.jobs.get(&job).map_or((Fate::There, 0), |job| (job.fate, job.decisions));
            if era == self.era && now == (Fate::There, decisions) {
                self.bad_heard.insert((job, sample));
            }
        }
    }

    /// A worker is about to tell of one.
    pub(crate) fn told_bad(&self, job: &str, sample: u64) -> Told {
        let decisions = self.jobs.get(job).map_or(0, |job| job.decisions);
        Told { era: self.era, decisions, job: job.to_owned(), sample }
    }

    /// Those of the folder are always there.
    fn fate(&self, job: &str) -> Fate {
        self.jobs.get(job).map_or(Fate::There, |job| job.fate)
    }

    pub(crate) fn is_removed(&self, job: &str) -> bool {
        matches!(self.fate(job), Fate::Removed { .. })
    }

    /// A coordinator has decided about a job that was submitted.
    pub(crate) fn decided_about_job(&mut self, at: usize, job: &str, is_removal: bool) {
        let submitted = self.jobs.entry(job.to_owned()).or_default();
        submitted.fate = Fate::Open;
        submitted.decisions += 1;
        if is_removal {
            self.adopted.retain(|_, (run, ..)| run.0 != job);
            self.bad_heard.retain(|(of, _)| of != job);
            let View { known, lagging, .. } = self.views.entry(at).or_default();
            known.retain(|_, known| known.run.0 != job);
            lagging.retain(|(_, session, ..)| known.contains_key(session));
        }
    }

    /// The admin is told that it is done.
    pub(crate) fn told_about_job(&mut self, job: &str, is_removal: bool, now_us: u64) {
        let submitted = self.jobs.entry(job.to_owned()).or_default();
        submitted.fate = if is_removal { Fate::Removed { since_us: now_us } } else { Fate::There };
    }

    /// A rank is told that there is no such job.
    pub(crate) fn told_unknown(&self, job: &str) -> Result<(), String> {
        match self.fate(job) {
            Fate::There => Err(format!("a rank is told that there is no job `{job}`, and there is")),
            _ => Ok(()),
        }
    }

    /// A rank takes a batch: of the newest session of its run, unless that is new or nothing is calm yet.
    pub(crate) fn settled(
        &mut self,
        job: &str,
        run: &str,
        stream: (u32, SessionId),
        now_us: u64,
        calm_us: Option<u64>,
    ) -> Result<(), String> {
        let key = (job.to_owned(), run.to_owned());
        let newest = self.delivering.entry(key).or_insert((stream, now_us));
        if stream > newest.0 {
            *newest = (stream, now_us);
        }
        let ((_, newest), since_us) = *newest;
        let Some(calm_us) = calm_us else { return Ok(()) };
        let is_settled = |since_us: u64| now_us > since_us.max(calm_us) + SETTLED_US;
        if newest > stream.1 && is_settled(since_us) {
            return Err(format!("session {} goes on, and session {} took its place long ago", stream.1.0, newest.0));
        }
        match self.fate(job) {
            Fate::Removed { since_us } if is_settled(since_us) => {
                Err(format!("job `{job}` was removed long ago, and session {} goes on", stream.1.0))
            }
            _ => Ok(()),
        }
    }

    /// The coordinator asks for these to be made durable.
    pub(crate) fn persisting(&mut self, at: usize, changes: &[Change]) {
        let View { lagging, durable, .. } = self.views.entry(at).or_default();
        for change in changes {
            let Change::PutSession(record) = change else { continue };
            for rank in &record.ranks {
                durable.insert((record.id, rank.rank), rank.acknowledged);
            }
            lagging.retain(|(_, session, rank, at)| durable.get(&(*session, *rank)).is_none_or(|is| is < at));
        }
    }

    /// After a tick, nothing that was acknowledged longer ago than that is not on its way to the disk.
    pub(crate) fn ticked(&self, at: usize, now_ms: u64, persist_ms: u64) -> Result<(), String> {
        let Some(view) = self.views.get(&at) else { return Ok(()) };
        let late = view.lagging.iter().find(|(since_ms, session, ..)| {
            now_ms.saturating_sub(*since_ms) > persist_ms && !view.is_superseded(*session)
        });
        late.map_or(Ok(()), |late| Err(format!("{late:?} is not made durable at {now_ms}")))
    }

    /// The coordinator has decided on an answer.
    pub(crate) fn answered(
        &mut self,
        at: usize,
        now_ms: u64,
        question: &ToCoordinator,
        answer: &FromCoordinator,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        match (question, answer) {
            (ToCoordinator::Join(join), FromCoordinator::Joined { session, .. }) => {
                self.on_join(at, now_ms, join, session, coverage)
            }
            (ToCoordinator::Join(_), FromCoordinator::Refused(refusal)) => {
                match refusal {
                    Refusal::RunInUse { .. } => coverage.count("join_refused_as_the_run_is_in_use"),
                    Refusal::SessionDisagrees { .. } => coverage.count("join_refused_as_it_disagrees"),
                    _ => {}
                }
                self.on_refused(at, question, refusal)
            }
            (ToCoordinator::RankBeat(beat), FromCoordinator::RankHeard { .. })
            | (ToCoordinator::RankLeave(beat), FromCoordinator::Done) => {
                if beat.unreachable.is_some() {
                    coverage.count("home_out_of_reach");
                }
                self.on_beat(at, now_ms, beat, matches!(question, ToCoordinator::RankLeave(_)))
            }
            _ => Ok(()),
        }
    }

    fn on_refused(&self, at: usize, question: &ToCoordinator, refusal: &Refusal) -> Result<(), String> {
        let (ToCoordinator::Join(join), Refusal::SessionSuperseded { .. }) = (question, refusal) else { return Ok(()) };
        let newest = self.views.get(&at).and_then(|view| view.newest(&run_of(join)));
        let is_current =
            newest.is_some_and(|(_, known)| known.ranks.get(&join.rank).is_some_and(|(_, nonce)| *nonce == join.nonce));
        if is_current { Err("a rank of the newest session is told of a newer one".into()) } else { Ok(()) }
    }

    fn on_join(
        &mut self,
        at: usize,
        now_ms: u64,
        join: &Join,
        session: &Session,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let Session { id, world, start, .. } = *session;
        let wanted = match join.start {
            Start::Beginning => Some(Position::START),
            Start::Resume => None,
            Start::At(position) => Some(position),
        };
        if world != join.world || wanted.is_some_and(|wanted| wanted != start) {
            return Err(format!("rank {} wants {:?} and gets world {world}, start {start}", join.rank, join));
        }
        let run = run_of(join);
        let liveness_ms = self.liveness_ms;
        let view = self.views.entry(at).or_default();
        let newest = view.newest(&run);
        if !view.known.contains_key(&id) {
            if let Some((other, _)) = view.known.last_key_value().filter(|(other, _)| **other > id) {
                return Err(format!("session {} begins after {}", id.0, other.0));
            }
            let before = newest.map_or(Position::START, |(_, known)| known.acknowledged());
            if let Some((before, known)) = newest {
                may_supersede(liveness_ms, now_ms, join, before, known, coverage)?;
            }
            let expected = wanted.unwrap_or(before);
            if start != expected {
                return Err(format!("session {} starts at {start} and not at {expected}", id.0));
            }
            coverage.count("session_begun");
            if newest.is_some() {
                coverage.count("session_superseded");
                let is_resumed = start > Position::START;
                let kind =
                    if wanted.is_some() { "session_resumed_from_state" } else { "session_resumed_without_state" };
                if is_resumed {
                    coverage.count(kind);
                }
            }
            let ranks = [(join.rank, (start, join.nonce))].into();
            let heard_ms = [(join.rank, Some(now_ms))].into();
            view.known.insert(id, Known { run, world, start, launch: join.launch.clone(), ranks, heard_ms });
            return Ok(());
        }
        if let Some((newest, _)) = newest.filter(|(newest, _)| *newest > id) {
            return Err(format!("session {} is joined, and has a successor: {newest:?}", id.0));
        }
        let known = view.known.get_mut(&id).expect("it was just found");
        if (known.world, known.start, &known.run) != (world, start, &run) {
            return Err(format!("session {} is {known:?} and is given as {run:?}, world {world}, start {start}", id.0));
        }
        known.heard_ms.insert(join.rank, Some(now_ms));
        match known.ranks.get(&join.rank) {
            Some((_, nonce)) if *nonce == join.nonce => coverage.count("join_repeated_after_a_lost_answer"),
            Some(_) => return Err(format!("rank {} of session {} is given away twice", join.rank, id.0)),
            None => {
                known.ranks.insert(join.rank, (start, join.nonce));
            }
        }
        Ok(())
    }

    fn on_beat(&mut self, at: usize, now_ms: u64, beat: &RankBeat, leaves: bool) -> Result<(), String> {
        let view = self.views.entry(at).or_default();
        if view.is_superseded(beat.session) {
            return Err(format!("session {} has a successor, and its rank {} is heard", beat.session.0, beat.rank));
        }
        let Some(known) = view.known.get_mut(&beat.session) else {
            return Err(format!("session {} comes out of nothing", beat.session.0));
        };
        let Some((acknowledged, _)) = known.ranks.get_mut(&beat.rank) else {
            return Err(format!("rank {} of session {} is heard and has not joined", beat.rank, beat.session.0));
        };
        let heard_ms = known.heard_ms.entry(beat.rank).or_insert(Some(now_ms));
        *heard_ms = heard_ms.filter(|_| !leaves).map(|_| now_ms);
        if beat.acknowledged > *acknowledged {
            *acknowledged = beat.acknowledged;
            if view.durable.get(&(beat.session, beat.rank)).is_none_or(|durable| *durable < beat.acknowledged) {
                view.lagging.push_back((now_ms, beat.session, beat.rank, beat.acknowledged));
            }
        }
        Ok(())
    }

    /// A client takes part in a session, for the first time in its life.
    pub(crate) fn joined(&mut self, client: usize, (era, rank): (u32, u32), session: &Session, scenario: &Scenario) {
        let cursor = Cursor {
            stream: (era, session.id),
            rank,
            world: session.world,
            job: session.job.name.clone(),
            params: scenario.dataset(&session.job.name).batch_params(session.global_batch),
            next: session.start,
        };
        self.cursors.insert(client, cursor);
    }

    /// A trainer was handed a batch: it is the one that the undisturbed run hands over here.
    pub(crate) fn took(
        &mut self,
        client: usize,
        content: &Content,
        scenario: &Scenario,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let cursor = self.cursors.get_mut(&client).ok_or("a batch came before the rank joined")?;
        let dataset = scenario.dataset(&cursor.job);
        let step = dataset.plan.step(cursor.next, &cursor.params).ok_or("a batch came after the last one")?;
        let Content { rank, world, from, next, ref entries } = *content;
        if (rank, world, from, next) != (cursor.rank, cursor.world, step.from, step.next) {
            return Err(format!("rank {rank} of {world} got {from} to {next}, where {step:?} is next for {cursor:?}"));
        }
        if step.from.epoch > cursor.next.epoch || step.next.epoch > step.from.epoch {
            coverage.count("epoch_crossed");
        }
        let mut items = Vec::new();
        dataset.plan.rank_items(&step, rank, world, &mut items);
        let expected = items.iter().map(|item| expected_entry(item.at, item.located.id.0, item.kind, dataset));
        if !expected.clone().eq(entries.iter().copied()) {
            return Err(format!("at {from} it got {entries:?}, and not {:?}", expected.collect::<Vec<_>>()));
        }
        cursor.next = next;
        let delivered = self.delivered.entry(cursor.stream).or_default();
        for entry in entries.iter().filter(|entry| entry.flags & (entry_flags::INVALID | entry_flags::PADDING) == 0) {
            if delivered.insert(entry.at, entry.id).is_some() {
                return Err(format!("{} is delivered twice", entry.at));
            }
        }
        Ok(())
    }

    /// A trainer was told that there is no more.
    pub(crate) fn ended(&self, client: usize, scenario: &Scenario) -> Result<(), String> {
        let cursor = self.cursors.get(&client).ok_or("the end came before the rank joined")?;
        match scenario.dataset(&cursor.job).plan.step(cursor.next, &cursor.params) {
            Some(step) => Err(format!("the end came where {step:?} is next")),
            None => Ok(()),
        }
    }

    /// All ranks of a session have ended: together they got all that there is from its start on, each once, and their
    /// receipts add up to it.
    pub(crate) fn finished(&self, clients: &[usize], session: &Session, receipts: Receipt) -> Result<(), String> {
        let cursors: Vec<&Cursor> = clients.iter().filter_map(|client| self.cursors.get(client)).collect();
        let Some(stream) = cursors.first().map(|cursor| cursor.stream) else { return Ok(()) };
        if cursors.iter().any(|cursor| cursor.stream != stream) {
            return Ok(());
        }
        let nothing = BTreeMap::new();
        let delivered = self.delivered.get(&stream).unwrap_or(&nothing);
        let mut expected = all_positions(session);
        if !delivered.keys().copied().eq(expected.by_ref()) {
            let missing = all_positions(session).find(|at| !delivered.contains_key(at));
            return Err(format!("session {} is over; not delivered: {missing:?}", session.id.0));
        }
        let mut receipt = Receipt::default();
        for (at, id) in delivered {
            receipt.add_sample(*at, SampleId(*id));
        }
        if receipt != receipts {
            return Err(format!("receipts of session {} add up to {receipts}, not to {receipt}", session.id.0));
        }
        Ok(())
    }
}

fn run_of(join: &Join) -> RunKey {
    (join.job.clone(), join.run.clone())
}

/// Whether a join may end the newest session of its run: no rank was heard there within the liveness timeout, or it is a
/// restart, or it takes over.
fn may_supersede(
    liveness_ms: u64,
    now_ms: u64,
    join: &Join,
    id: SessionId,
    known: &Known,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let alive =
        known.heard_ms.iter().find(|(_, heard_ms)| heard_ms.is_some_and(|at| now_ms.saturating_sub(at) <= liveness_ms));
    let Some((rank, _)) = alive else { return Ok(()) };
    if join.launch.is_some() && join.launch == known.launch {
        coverage.count("living_session_superseded_by_a_restart");
    } else if join.takeover {
        coverage.count("living_session_taken_over");
    } else {
        return Err(format!("{join:?} ends {id}, whose rank {rank} is alive, and does not take over"));
    }
    Ok(())
}

/// What an entry must be, by the plan and the list of bad samples.
fn expected_entry(at: Position, mut id: u64, kind: ItemKind, dataset: &Dataset) -> Entry {
    let mut flags = match kind {
        ItemKind::Sample => 0,
        ItemKind::Padding => entry_flags::PADDING,
        ItemKind::Invalid => return Entry { at, id, flags: entry_flags::INVALID },
    };
    if dataset.bad.contains(&id) {
        if dataset.job.bad_samples == BadSamples::Mask {
            return Entry { at, id, flags: flags | entry_flags::MASKED };
        }
        flags |= entry_flags::SUBSTITUTED;
        let substitutes = (0..).map(|attempt| dataset.plan.substitute(at.epoch, at.offset, attempt).id.0);
        id = substitutes.into_iter().find(|id| !dataset.bad.contains(id)).expect("few samples are bad");
    }
    Entry { at, id, flags }
}

/// Every position that a session delivers, by arithmetic of its own and not the plan's.
fn all_positions(session: &Session) -> impl Iterator<Item = Position> + use<> {
    let (samples, batch) = (session.job.samples, u64::from(session.global_batch));
    let (start, epochs, policy) = (session.start, session.job.epochs, session.job.epoch_end);
    let first = start.epoch.min(epochs);
    let left = samples * (epochs - first) - if first < epochs { start.offset.min(samples) } else { 0 };
    let whole = left / batch * batch;
    let of_epoch = move |epoch: u64| {
        let from = if epoch == start.epoch { start.offset.min(samples) } else { 0 };
        let count = if policy == EpochEnd::Drop { (samples - from) / batch * batch } else { samples - from };
        (from..from + count).map(move |offset| Position::new(epoch, offset))
    };
    let all = (first..epochs).flat_map(of_epoch);
    all.take(if policy == EpochEnd::Continuous { whole as usize } else { usize::MAX })
}
