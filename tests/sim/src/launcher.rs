//! The launcher, which starts trainers: launches of a world of ranks, restarts after a failure, from a saved state,
//! resumed or from the beginning, at other sizes.
//!
//! A launcher with launch ids gives restarts the same id, and a launch beside the current one another id. A launcher
//! without ids stands for a person at a keyboard, who restarts what has ended, reads that the run is in use, and then
//! launches once more, usually with a takeover.

use std::collections::BTreeMap;

use spdl_control::{
    client::{JoinRequest, Timing},
    messages::{Refusal, Start},
};
use spdl_order::Receipt;
use spdl_types::{Fingerprint, Position};

use crate::{
    client::SimClient,
    process::{SimProcess, Target},
    scenario::Restarts,
    worker::node_of,
    world::{Action, Event, ProcessInput, World},
};

/// The launches of a run, one after the other.
#[derive(Debug, Default)]
pub(crate) struct SimLauncher {
    pub(crate) current: Launch,
    /// When its current launch last made progress.
    pub(crate) progress_us: u64,
    /// Whether launches wait until the job was submitted.
    waits_for_job: bool,
    /// Whether the job is gone for good, or has failed.
    pub(crate) is_given_up: bool,
    launches: u64,
    /// The positions that trainers have saved.
    states: Vec<Position>,
    /// The fingerprints of the job up to these positions, as they were saved last.
    saved: BTreeMap<Position, Fingerprint>,
    /// Whether a launch is scheduled.
    is_pending: bool,
    /// The id of the current launch; smaller ids belong to other launches.
    ids: u64,
    /// The reasons of the last refusals: the run is in use, or it is finished.
    is_refused: bool,
    is_finished: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Launch {
    pub(crate) number: u64,
    world: u32,
    batch: Option<u32>,
    start: Start,
    takeover: bool,
    /// The client of each rank.
    ranks: Vec<Option<usize>>,
    is_over: bool,
}

impl SimLauncher {
    /// Returns whether the last launch reached the end of all epochs, or no launch ever will.
    pub(crate) const fn is_done(&self) -> bool {
        self.current.is_over && !self.is_pending
    }
}

impl World {
    /// Starts the run's first launch, once its job exists.
    pub(crate) fn begin_run(&mut self, launcher: usize) {
        match self.scenario.runs[launcher].0 {
            0 => self.launch(launcher),
            _ => self.launchers[launcher].waits_for_job = true,
        }
    }

    /// Starts the launches that waited for a job, which was submitted.
    pub(crate) fn job_is_there(&mut self, job: usize) {
        for launcher in 0..self.launchers.len() {
            let is_its = self.scenario.runs[launcher].0 == job;
            if is_its && std::mem::take(&mut self.launchers[launcher].waits_for_job) {
                self.progress(launcher);
                self.launch_after(launcher, 1_000);
            }
        }
    }

    /// Handles a rank that got the error that its job was removed: the job is submitted again, or the run given up.
    pub(crate) fn job_removed(&mut self, client: usize) {
        let launcher = self.clients[client].launcher;
        let job = self.scenario.runs[launcher].0;
        let is_current = self.clients[client].launch == self.launchers[launcher].current.number;
        if !is_current || self.launchers[launcher].waits_for_job {
            return;
        }
        if self.oracle.is_removed(&self.scenario.jobs[job].job.name) && self.dice.percent(50) {
            return self.give_up(client);
        }
        self.end_ranks(launcher, true);
        self.launchers[launcher].waits_for_job = true;
        self.submit(job);
    }

    /// Gives up a run and ends its remaining ranks.
    pub(crate) fn give_up(&mut self, client: usize) {
        let launcher = self.clients[client].launcher;
        if self.clients[client].launch != self.launchers[launcher].current.number {
            return;
        }
        self.note(format_args!("run {launcher} is given up"));
        self.end_ranks(launcher, true);
        self.launchers[launcher].current.is_over = true;
        self.launchers[launcher].is_given_up = true;
        for other in 0..self.clients.len() {
            if self.clients[other].launcher == launcher {
                self.remind(10_000_000, Target::Client(other), ProcessInput::Exit);
            }
        }
    }

    /// Starts a launch; if the previous one still runs, it is left alone.
    pub(crate) fn launch(&mut self, launcher: usize) {
        if self.launchers[launcher].waits_for_job || self.launchers[launcher].is_given_up {
            self.launchers[launcher].is_pending = false;
            return;
        }
        let (dice, scenario) = (&mut self.dice, &self.scenario);
        let before = &self.launchers[launcher].current;
        let is_resized = before.world == 0 || dice.percent(50);
        let world = if is_resized { dice.within(1, u64::from(scenario.max_world)) as u32 } else { before.world };
        let batch = if is_resized { scenario.other_batch(dice) } else { before.batch };
        if before.world != 0 && before.world != world {
            self.coverage.count("session_resized");
        }
        let start = match self.launchers[launcher].states.as_slice() {
            _ if self.launchers[launcher].is_finished || (before.is_over && dice.percent(80)) => Start::Beginning,
            _ if dice.percent(40) => Start::Resume,
            [] => Start::Beginning,
            states => Start::At(states[states.len() - 1 - dice.index(states.len().min(3))]),
        };
        // After a refusal because the run is in use, the person takes over: sometimes during the fault phase, always in
        // the calm phase.
        let state = &mut self.launchers[launcher];
        let takeover = std::mem::take(&mut state.is_refused) && (self.is_calm || dice.percent(50));
        state.is_finished = false;
        state.launches += 1;
        state.is_pending = false;
        if state.current.is_over {
            state.states.clear();
        }
        let number = state.launches;
        let ranks = vec![None; world as usize];
        self.note(format_args!(
            "launch {number}: world {world}, batch {batch:?}, start {start:?}, takeover {takeover}"
        ));
        self.launchers[launcher].current = Launch { number, world, batch, start, takeover, ranks, is_over: false };
        self.progress(launcher);
        let spread_us = self.dice.pick(&[1_000, 500_000, 6_000_000]);
        for rank in 0..world {
            let delay_us = self.dice.within(0, spread_us);
            self.schedule(delay_us, Event::World(Action::StartRank { launcher, launch: number, rank, start }));
        }
    }

    pub(crate) fn start_rank(&mut self, launcher: usize, launch: u64, rank: u32, start: Start) {
        let current = &self.launchers[launcher].current;
        if launch != current.number || current.is_over || rank as usize >= current.ranks.len() {
            return;
        }
        let client = self.clients.len();
        let host = (rank as usize + launch as usize) % self.workers.len();
        // A saved position may be the end of the stream; with the job's fingerprint it is accepted as a state.
        let (job, run) = &self.scenario.runs[launcher];
        let job = &self.scenario.jobs[*job].job;
        let fingerprint = match start {
            Start::At(at) => self.launchers[launcher].saved.get(&at).copied(),
            _ => None,
        };
        let current = &self.launchers[launcher].current;
        let join_request = JoinRequest {
            job: job.name.clone(),
            run: run.clone(),
            rank,
            world: current.world,
            global_batch: current.batch,
            epochs: None,
            start,
            fingerprint,
            launch: self.scenario.has_launch_ids.then(|| self.launchers[launcher].ids.to_string()),
            takeover: current.takeover,
            since_unix_s: self.now_us / 1_000_000,
            node: node_of(host),
            client: format!("c{client}"),
            nonce: self.dice.bits(),
            slots: self.scenario.slots,
            transports: self.scenario.transports,
            socket: None,
            coordinators: "c".into(),
        };
        let mut process = SimProcess::new(host);
        process.start(self.now_us, self.scenario.drift, &mut self.dice);
        // Coordinators that are down for long must not end a launch in the simulation.
        let timing = Timing { join_timeout_ms: 10_000_000, ..Timing::default() };
        self.clients.push(SimClient::new(join_request, timing, (launcher, launch), process, self.now_us));
        self.launchers[launcher].current.ranks[rank as usize] = Some(client);
        self.after_client(client);
    }

    /// Returns whether all trainers have done the step before this client's next one.
    pub(crate) fn may_step(&self, client: usize) -> bool {
        let state = &self.clients[client];
        let launch = &self.launchers[state.launcher].current;
        if !self.scenario.is_lockstep || state.launch != launch.number {
            return !self.scenario.is_lockstep;
        }
        let start = |client: &SimClient| client.session.as_ref().map(|session| session.start);
        launch.ranks.iter().all(|peer| {
            let Some(peer) = peer.map(|peer| &self.clients[peer]) else { return false };
            start(peer) == start(state) && (peer.position >= state.position || peer.is_ended)
        })
    }

    /// Handles a rank that took a batch, or the end.
    pub(crate) fn rank_stepped(&mut self, client: usize) {
        let launcher = self.clients[client].launcher;
        if self.clients[client].launch == self.launchers[launcher].current.number {
            self.progress(launcher);
        }
        self.peers_may_step(client);
    }

    fn peers_may_step(&mut self, client: usize) {
        let launcher = self.clients[client].launcher;
        let launch = &self.launchers[launcher].current;
        let all: Vec<usize> = launch.ranks.iter().flatten().copied().filter(|peer| *peer != client).collect();
        if self.clients[client].launch == launch.number && all.len() + 1 == launch.ranks.len() && self.dice.percent(20)
        {
            let ranks = self.launchers[launcher].current.ranks.iter().flatten();
            let state = ranks.map(|rank| self.clients[*rank].position).min();
            let session = self.clients[client].session.as_ref();
            if let Some((at, session)) = state.zip(session) {
                let fingerprint = session.job.fingerprint_up_to(at);
                self.launchers[launcher].states.push(at);
                self.launchers[launcher].saved.insert(at, fingerprint);
            }
        }
        if self.scenario.is_lockstep {
            for peer in all {
                self.train(peer);
            }
        }
    }

    /// Handles a rank that reached the end; when all ranks have, they exit.
    pub(crate) fn rank_ended(&mut self, client: usize) {
        let launcher = self.clients[client].launcher;
        let launch = &self.launchers[launcher].current;
        if self.clients[client].launch != launch.number || launch.is_over {
            return;
        }
        let ranks: Vec<usize> = launch.ranks.iter().flatten().copied().collect();
        if ranks.is_empty()
            || ranks.len() < launch.ranks.len()
            || !ranks.iter().all(|rank| self.clients[*rank].is_ended)
        {
            return;
        }
        self.launchers[launcher].current.is_over = true;
        self.coverage.count("launch_finished");
        if self.launchers.len() > 1 {
            self.coverage.count("run_finished_beside_another");
        }
        let mut receipts = Receipt::default();
        for rank in &ranks {
            receipts += self.clients[*rank].receipt;
        }
        let sessions: Vec<_> = ranks.iter().filter_map(|rank| self.clients[*rank].session.clone()).collect();
        if sessions.iter().all(|session| session.id == sessions[0].id) {
            let of_job = (self.scenario.dataset_of(&sessions[0].job), &mut self.coverage);
            if let Err(problem) = self.oracle.finished(&ranks, &sessions[0], receipts, of_job) {
                self.fail(problem);
            }
        }
        for rank in ranks {
            let delay_us = self.dice.within(0, 300_000);
            self.remind(delay_us, Target::Client(rank), ProcessInput::Close);
        }
        if self.is_calm {
            // Ranks left over from older launches would wait for the other ranks of their launch.
            for client in 0..self.clients.len() {
                if self.clients[client].launcher == launcher {
                    self.remind(10_000_000, Target::Client(client), ProcessInput::Exit);
                }
            }
        } else {
            let delay_us = self.dice.within(100_000, 8_000_000);
            self.launch_after(launcher, delay_us);
        }
    }

    /// Starts another launch while the current one continues.
    pub(crate) fn launch_beside(&mut self, launcher: usize) {
        if self.launchers[launcher].is_given_up {
            return;
        }
        self.launchers[launcher].ids += 1;
        self.launch_after(launcher, 1_000);
    }

    /// Records that a rank of the current launch was refused, and why.
    pub(crate) fn refused(&mut self, client: usize, refusal: &Refusal) {
        let launcher = self.clients[client].launcher;
        if self.clients[client].launch == self.launchers[launcher].current.number {
            self.launchers[launcher].is_refused |=
                matches!(refusal, Refusal::RunInUse { .. } | Refusal::SessionDisagrees { .. });
            self.launchers[launcher].is_finished |= matches!(refusal, Refusal::RunFinished { .. });
        }
    }

    /// Handles a rank whose job has other stages since: no saved state may be of it any more, so the next launch resumes.
    pub(crate) fn forget_states(&mut self, client: usize) {
        let launcher = self.clients[client].launcher;
        let launch = self.clients[client].launch;
        let state = &mut self.launchers[launcher];
        state.states.clear();
        if launch == state.current.number {
            state.current.start = Start::Resume;
        }
        self.progress(launcher);
    }

    /// Returns the clients of a run's current launch.
    pub(crate) fn ranks_of(&self, launcher: usize) -> Vec<usize> {
        self.launchers[launcher].current.ranks.iter().flatten().copied().collect()
    }

    /// Returns the furthest position of the trainers of a run's current launch.
    pub(crate) fn furthest(&self, launcher: usize) -> Position {
        let reached = self.ranks_of(launcher).into_iter().map(|rank| self.clients[rank].position);
        reached.max().unwrap_or(Position::START)
    }

    pub(crate) fn launch_after(&mut self, launcher: usize, delay_us: u64) {
        if !self.launchers[launcher].is_pending {
            self.launchers[launcher].is_pending = true;
            self.schedule(delay_us, Event::World(Action::Launch { launcher }));
        }
    }

    /// Handles the end of a rank's process; if that was too early, it is restarted.
    pub(crate) fn rank_removed(&mut self, client: usize) {
        let state = &self.clients[client];
        let launcher = state.launcher;
        let launch = &self.launchers[launcher].current;
        let is_current = launch.ranks.get(state.rank as usize) == Some(&Some(client));
        if !is_current || launch.is_over {
            return;
        }
        let (number, rank) = (launch.number, state.rank);
        self.launchers[launcher].current.ranks[rank as usize] = None;
        match self.scenario.restarts {
            Restarts::Alone => {
                let delay_us = self.dice.within(100_000, 3_000_000);
                let state = &self.launchers[launcher];
                if state.is_refused || state.is_finished {
                    // The person's reaction to a refusal is not a stall of the cluster.
                    self.progress(launcher);
                }
                let state = &mut self.launchers[launcher];
                if std::mem::take(&mut state.is_refused) && (self.is_calm || self.dice.percent(50)) {
                    state.current.takeover = true;
                }
                if std::mem::take(&mut state.is_finished) {
                    state.current.start = Start::Beginning;
                }
                // It is restarted with its original arguments, as by a script.
                let start = state.current.start;
                self.schedule(delay_us, Event::World(Action::StartRank { launcher, launch: number, rank, start }));
            }
            Restarts::Together => self.relaunch(launcher),
        }
    }

    /// Ends all ranks, gracefully or by a kill, and launches again.
    pub(crate) fn relaunch(&mut self, launcher: usize) {
        let state = &self.launchers[launcher];
        if state.is_pending || state.waits_for_job || state.is_given_up {
            return;
        }
        let delay_us = self.dice.pick(&[100_000, 1_000_000, 4_000_000, 9_000_000]);
        // The person's pause before the next launch is not the cluster's.
        self.progress(launcher);
        self.launch_after(launcher, delay_us);
        let is_polite = self.dice.percent(40);
        self.end_ranks(launcher, is_polite);
    }

    fn end_ranks(&mut self, launcher: usize, is_polite: bool) {
        let ranks = std::mem::take(&mut self.launchers[launcher].current.ranks);
        for rank in ranks.into_iter().flatten() {
            let is_late = self.dice.percent(10);
            let delay_us = self.dice.within(0, if is_late { 12_000_000 } else { 1_000_000 });
            let input = if is_polite { ProcessInput::Close } else { ProcessInput::Exit };
            self.remind(delay_us, Target::Client(rank), input);
        }
    }
}
