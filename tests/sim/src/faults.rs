//! The faults: how they are injected and how they end.

use spdl_insight::Transport;

use crate::{
    process::{Running, Target},
    world::{Action, Event, ProcessInput, World},
    writer::SimDisk,
};

/// A kind of fault. Each seed has only some kinds, so that those often coincide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    KillWorker,
    LeaveWorker,
    KillCoordinator,
    /// While it writes several changes at once.
    KillCoordinatorWriting,
    StopCoordinatorInOrder,
    WipeCoordinator,
    PauseWorker,
    PauseCoordinator,
    PauseClient,
    KillRank,
    Relaunch,
    /// Another launch while the current one continues.
    LaunchTwice,
    CutOneWay,
    CutBothWays,
    SlowPath,
    BreakConnection,
    /// At one end only: the connection is half-open.
    BreakOneEnd,
    StoreAway,
    StoreSlow,
    StepClock,
    StepClockBack,
    /// All processes of a host are stopped, and usually their clocks too.
    SuspendHost,
    SlowDisk,
    /// Each write takes tens of seconds.
    StuckDisk,
    /// The disk is full for a while.
    FullDisk,
    // For a state in etcd only.
    EtcdAway,
    /// The path from a coordinator to etcd loses requests, answers or both.
    EtcdCut,
    EtcdSlow,
    RemoveJob,
    ChangeStages,
    /// Other weights while ranks train.
    ChangeWeights,
    /// Samples are redacted while ranks train.
    Redact,
}

impl Fault {
    pub(crate) const ALL: [Self; 32] = [
        Self::KillWorker,
        Self::LeaveWorker,
        Self::KillCoordinator,
        Self::KillCoordinatorWriting,
        Self::StopCoordinatorInOrder,
        Self::WipeCoordinator,
        Self::PauseWorker,
        Self::PauseCoordinator,
        Self::PauseClient,
        Self::KillRank,
        Self::Relaunch,
        Self::LaunchTwice,
        Self::CutOneWay,
        Self::CutBothWays,
        Self::SlowPath,
        Self::BreakConnection,
        Self::BreakOneEnd,
        Self::StoreAway,
        Self::StoreSlow,
        Self::StepClock,
        Self::StepClockBack,
        Self::SuspendHost,
        Self::SlowDisk,
        Self::StuckDisk,
        Self::FullDisk,
        Self::EtcdAway,
        Self::EtcdCut,
        Self::EtcdSlow,
        Self::RemoveJob,
        Self::ChangeStages,
        Self::ChangeWeights,
        Self::Redact,
    ];

    /// Returns whether the fault can occur in this scenario.
    pub(crate) const fn can_be(self, has_etcd: bool, jobs: usize, has_stages: bool) -> bool {
        match self {
            Self::EtcdAway | Self::EtcdCut | Self::EtcdSlow => has_etcd,
            // A state in etcd is not the coordinator's to lose.
            Self::WipeCoordinator => !has_etcd,
            // The job of the jobs directory would be created again at the next start.
            Self::RemoveJob => jobs > 1,
            Self::ChangeStages | Self::ChangeWeights => has_stages,
            _ => true,
        }
    }
}

impl World {
    pub(crate) fn next_fault(&mut self) {
        if self.now_us >= self.scenario.chaos_us {
            return self.calm();
        }
        let fault = self.scenario.faults[self.dice.index(self.scenario.faults.len())];
        self.note(format_args!("fault: {fault:?}"));
        self.inject(fault);
        let gap_us = self.dice.within(1_000, 2 * self.scenario.fault_gap_us);
        self.schedule(gap_us, Event::World(Action::Fault));
    }

    /// Returns the duration of a fault: usually short, sometimes longer than every timeout.
    fn while_us(&mut self) -> u64 {
        let most_us = self.dice.pick(&[50_000, 1_000_000, 7_000_000, 20_000_000]);
        self.dice.within(1_000, most_us)
    }

    fn inject(&mut self, fault: Fault) {
        let worker = self.some_worker(fault);
        let coordinator = self.some_coordinator();
        let launcher = self.dice.index(self.launchers.len());
        let for_us = self.while_us();
        match fault {
            Fault::KillWorker if self.workers[worker].process.is_alive() => {
                self.kill_worker(worker);
                self.schedule(for_us, Event::World(Action::Start(Target::Worker(worker))));
            }
            Fault::LeaveWorker if self.workers[worker].process.is_running() => {
                self.leave_worker(worker);
                if self.dice.percent(50) {
                    // It hangs while it drains.
                    self.pause(Target::Worker(worker), for_us);
                }
            }
            Fault::KillCoordinator | Fault::StopCoordinatorInOrder | Fault::WipeCoordinator
                if self.coordinators[coordinator].process.is_running() =>
            {
                match fault {
                    Fault::StopCoordinatorInOrder => self.stop_coordinator(coordinator),
                    _ => self.kill_coordinator(coordinator),
                }
                if fault == Fault::WipeCoordinator {
                    match self.dice.percent(60) {
                        true => self.wipe_coordinator(),
                        false => self.roll_back_coordinator(),
                    }
                }
                self.schedule(for_us, Event::World(Action::Start(Target::Coordinator(coordinator))));
            }
            Fault::KillCoordinatorWriting => self.coordinators[coordinator].dies_writing = true,
            Fault::PauseWorker => self.pause(Target::Worker(worker), for_us),
            Fault::PauseCoordinator => self.pause(Target::Coordinator(coordinator), for_us),
            Fault::PauseClient => {
                if let Some(client) = self.some_client() {
                    self.pause(Target::Client(client), for_us);
                }
            }
            Fault::KillRank => {
                if let Some(client) = self.some_client() {
                    self.kill_client(client);
                }
            }
            Fault::Relaunch => self.relaunch(launcher),
            Fault::LaunchTwice => self.launch_beside(launcher),
            Fault::RemoveJob => self.remove_job(),
            Fault::ChangeStages => self.change_stages(launcher),
            Fault::ChangeWeights => self.change_weights(launcher),
            Fault::Redact => self.redact(launcher),
            Fault::CutOneWay | Fault::CutBothWays => self.cut(fault == Fault::CutBothWays, for_us),
            Fault::SlowPath => {
                let (from, to) = (self.dice.index(self.paths.hosts()), self.dice.index(self.paths.hosts()));
                self.paths.extra_us[from][to] = self.dice.pick(&[20_000, 200_000, 2_000_000]);
                self.schedule(for_us, Event::World(Action::SpeedUp { from, to }));
            }
            Fault::BreakConnection | Fault::BreakOneEnd => self.break_some_connection(fault == Fault::BreakConnection),
            Fault::StoreAway => self.store.away_until_us = self.now_us + for_us,
            Fault::StoreSlow => self.store.slow_until_us = self.now_us + for_us,
            Fault::StepClock | Fault::StepClockBack => {
                self.step_clock(coordinator, worker, fault == Fault::StepClockBack)
            }
            Fault::SuspendHost => self.suspend_host(for_us),
            Fault::SlowDisk => self.state.disk.slow_until_us = self.now_us + for_us,
            Fault::StuckDisk => self.state.disk.stuck_until_us = self.now_us + for_us,
            Fault::FullDisk => self.state.disk.refuses_until_us = self.now_us + for_us,
            Fault::EtcdAway | Fault::EtcdCut | Fault::EtcdSlow => self.disturb_etcd(fault, coordinator, for_us),
            _ => {}
        }
    }

    /// Returns a random worker. A fault that ends a worker often takes the last one where there are helpers, because
    /// that one always is a helper.
    fn some_worker(&mut self, fault: Fault) -> usize {
        let is_end = matches!(fault, Fault::KillWorker | Fault::LeaveWorker);
        if is_end && self.scenario.has_help() && self.dice.percent(50) {
            return self.workers.len() - 1;
        }
        self.dice.index(self.workers.len())
    }

    /// Returns a random coordinator, usually the leader.
    fn some_coordinator(&mut self) -> usize {
        let any = self.dice.index(self.coordinators.len());
        self.latest_leader.filter(|_| self.dice.percent(60)).unwrap_or(any)
    }

    fn disturb_etcd(&mut self, fault: Fault, coordinator: usize, for_us: u64) {
        let until_us = self.now_us + for_us;
        let Some(etcd) = &mut self.etcd else { return };
        let path = &mut etcd.paths[coordinator];
        match fault {
            Fault::EtcdAway => etcd.away_until_us = until_us,
            Fault::EtcdSlow => path.slow_until_us = until_us,
            _ => {
                let which = self.dice.index(3);
                path.loses_questions_until_us = if which == 1 { 0 } else { until_us };
                path.loses_answers_until_us = if which == 2 { 0 } else { until_us };
            }
        }
    }

    fn some_client(&mut self) -> Option<usize> {
        let alive: Vec<usize> =
            (0..self.clients.len()).filter(|client| self.clients[*client].process.is_alive()).collect();
        (!alive.is_empty()).then(|| self.dice.pick(&alive))
    }

    fn cut(&mut self, is_both_ways: bool, for_us: u64) {
        let hosts = self.paths.hosts();
        let (from, to) = (self.dice.index(hosts), self.dice.index(hosts));
        self.paths.cut(from, to);
        self.schedule(for_us, Event::World(Action::Mend { from, to }));
        if is_both_ways {
            self.paths.cut(to, from);
            self.schedule(for_us, Event::World(Action::Mend { from: to, to: from }));
        }
    }

    fn break_some_connection(&mut self, is_both_ends: bool) {
        let quic = self.conns.iter().filter(|(_, conn)| conn.transport == Transport::Quic || is_both_ends);
        let all: Vec<u64> = quic.map(|(id, _)| *id).collect();
        if all.is_empty() {
            return;
        }
        let conn = self.dice.pick(&all);
        let side = self.dice.index(2);
        let sides: &[usize] = if is_both_ends { &[0, 1] } else { &[side] };
        self.break_connection(conn, sides);
    }

    fn step_clock(&mut self, coordinator: usize, worker: usize, is_back: bool) {
        let client = self.some_client().map(Target::Client);
        let targets = [
            Target::Coordinator(coordinator),
            Target::Worker(worker),
            client.unwrap_or(Target::Coordinator(coordinator)),
        ];
        let target = self.dice.pick(&targets);
        if is_back {
            self.coverage.count("clock_stepped_back");
            let step_ms = self.dice.pick(&[10, 500, 2_000]);
            self.process_mut(target).clock.step_back(step_ms);
        } else {
            let step_ms = self.dice.pick(&[100, 2_000, 6_000, 60_000]);
            self.process_mut(target).clock.step(step_ms);
        }
        if let Target::Client(_) = target {
            self.remind(1, target, ProcessInput::Wake);
        }
    }

    fn suspend_host(&mut self, for_us: u64) {
        let host = self.dice.index(self.paths.hosts());
        let stands_still = self.dice.percent(75);
        self.coverage.count("host_suspended");
        let workers = (0..self.workers.len()).map(Target::Worker);
        let clients = (0..self.clients.len()).map(Target::Client);
        let coordinators = (0..self.coordinators.len()).map(Target::Coordinator);
        let all: Vec<Target> = workers.chain(clients).chain(coordinators).collect();
        for target in all {
            if self.process(target).host == host && self.process(target).is_running() {
                self.pause(target, for_us);
                self.process_mut(target).suspended_us = stands_still.then_some(self.now_us);
            }
        }
    }

    pub(crate) fn pause(&mut self, target: Target, for_us: u64) {
        if self.process(target).is_running() {
            self.process_mut(target).running = Running::Stopped;
            let life = self.process(target).life;
            self.schedule(for_us, Event::World(Action::Resume { target, life }));
            let liveness_us = self.scenario.config.liveness_ms * 1_000;
            if for_us > liveness_us && matches!(target, Target::Worker(_)) {
                self.coverage.count("worker_was_stopped_for_longer_than_liveness");
            }
            if for_us > liveness_us && matches!(target, Target::Client(_)) {
                self.coverage.count("rank_was_silent_for_longer_than_liveness");
            }
        }
    }

    pub(crate) fn resume(&mut self, target: Target, life: u32) {
        let now_us = self.now_us;
        let process = self.process_mut(target);
        if process.running != Running::Stopped || process.life != life {
            return;
        }
        process.running = Running::Yes;
        if let Some(since_us) = process.suspended_us.take() {
            process.clock.stand_still(now_us - since_us);
        }
        // Held events are handled before any later ones.
        let held: Vec<Event> = process.held.drain(..).collect();
        for event in held {
            if matches!(target, Target::Coordinator(_)) {
                // Requests are tasks of their own: requests that were held together are handled in any order.
                let is_question = matches!(event, Event::Packet { message: Some(_), .. });
                let delay_us = if is_question { self.dice.within(0, 3_000) } else { 3_000 };
                self.schedule(delay_us, event);
            } else {
                self.dispatch(event);
            }
        }
        if let Target::Client(client) = target {
            self.train(client);
        }
    }

    pub(crate) fn start(&mut self, target: Target) {
        if self.process(target).is_alive() {
            return;
        }
        match target {
            Target::Coordinator(coordinator) => self.start_coordinator(coordinator),
            Target::Worker(worker) => self.start_worker(worker),
            Target::Client(_) | Target::Admin => unreachable!("ranks are launched, and the admin is never killed"),
        }
    }

    /// Begins the calm phase: no more faults. Some processes stay down or stopped, but at least one worker runs.
    fn calm(&mut self) {
        self.note(format_args!("calm"));
        self.is_calm = true;
        self.calm_us = self.now_us;
        self.paths.mend_all();
        self.store.away_until_us = 0;
        self.store.slow_until_us = 0;
        self.state.disk = SimDisk::default();
        if let Some(etcd) = &mut self.etcd {
            etcd.mend();
        }
        let mut without = self.dice.index(2 * self.coordinators.len());
        for at in 0..self.coordinators.len() {
            self.coordinators[at].dies_writing = false;
            if self.etcd.is_none() {
                // Writes in progress complete as well.
                self.remind(1_000, Target::Coordinator(at), ProcessInput::Written);
            }
        }
        if self.coordinators.len() == 1 {
            without = 1;
        }
        let takes_ranks = |worker: &usize| !self.scenario.help_role(*worker).is_some_and(|role| role.is_helper_only);
        let all: Vec<usize> = (0..self.workers.len()).filter(takes_ranks).collect();
        let spared = self.dice.pick(&all);
        let keeps_one = self.dice.percent(50);
        for worker in 0..self.workers.len() {
            let stays = keeps_one && worker != spared && self.workers.len() > 1;
            if !stays {
                self.wake(Target::Worker(worker));
                continue;
            }
            self.stay_away.push(Target::Worker(worker));
            if self.workers[worker].process.is_running() && self.dice.percent(50) {
                self.workers[worker].process.running = Running::Stopped;
            }
        }
        for at in 0..self.coordinators.len() {
            if at != without {
                self.wake(Target::Coordinator(at));
                continue;
            }
            self.stay_away.push(Target::Coordinator(at));
            if self.coordinators[at].process.is_alive() && self.dice.percent(50) {
                self.kill_coordinator(at);
            }
        }
        for client in 0..self.clients.len() {
            let life = self.clients[client].process.life;
            self.resume(Target::Client(client), life);
        }
        for launcher in 0..self.launchers.len() {
            if self.launchers[launcher].is_done() && !self.launchers[launcher].is_given_up {
                self.launch_after(launcher, 1_000);
            }
        }
    }

    fn wake(&mut self, target: Target) {
        let life = self.process(target).life;
        self.resume(target, life);
        self.start(target);
    }
}
