//! The world of one seed: processes, connections and a queue of events in virtual time.

use std::{
    collections::{BTreeMap, BinaryHeap},
    fmt::{self, Write as _},
};

use spdl_control::{client::LinkId, messages::Start};

use crate::{
    admin::Admin,
    client::{SimClient, SlotBatch},
    coordinator::SimCoordinator,
    coverage::Coverage,
    dice::Dice,
    etcd::{EtcdAnswer, Question, SimEtcd},
    launcher::SimLauncher,
    net::{Conn, ConnId, Paths, Side, SimMessage},
    oracle::Oracle,
    process::{Running, SimProcess, Target},
    scenario::Scenario,
    worker::{SimWorker, Store},
    writer::DurableState,
};

/// In the calm phase, the current launch must take a batch, end, or be replaced at least this often.
const STILL_US: u64 = 30_000_000;
/// More events than happen between two batches of the current launch: the world is in a loop.
const STILL_EVENTS: u64 = 3_000_000;

/// A scheduled event.
#[derive(Debug)]
pub(crate) enum Event {
    /// An event from a process to itself; dropped when the process ends, and held while it is stopped.
    Input {
        target: Target,
        life: u32,
        input: ProcessInput,
    },
    /// A message arrives at an end of a connection; `None` stands for the oldest message on its way there.
    Packet {
        conn: ConnId,
        to: Side,
        message: Option<SimMessage>,
    },
    KeepAlive {
        conn: ConnId,
    },
    /// A coordinator's request arrives at etcd.
    Etcd {
        from: usize,
        life: u32,
        call: u64,
        question: Box<Question>,
    },
    World(Action),
}

/// An event from a process to itself: a timer, or a message between its tasks.
#[derive(Debug)]
pub(crate) enum ProcessInput {
    AnswerTimeout { id: u64 },
    Exit,
    // For a coordinator.
    Tick,
    Written,
    RetryWrite,
    DieWriting,
    HeartbeatTimeout { conn: ConnId, id: u64 },
    Election { timer: u64 },
    EtcdAnswer { call: u64, answer: Box<EtcdAnswer> },
    EtcdTimeout { call: u64 },
    // For a worker.
    Heartbeat { timer: u64 },
    Leave { timer: u64 },
    Opened { conn: ConnId },
    Decoded { conn: ConnId, sequence: u64, samples: usize },
    SampleDecoded { conn: ConnId, sequence: u64 },
    FillDone { conn: ConnId, sequence: u64, attempts: u32 },
    HelpTimeout { id: u64 },
    Helped { conn: ConnId, id: u64, columns: Vec<Option<u64>> },
    // For a client.
    Wake,
    Core(Box<spdl_control::client::SessionEvent>),
    Filled { link: LinkId, sequence: u64, batch: SlotBatch },
    Trained,
    Close,
    // For the admin.
    AskAgain,
}

/// An action of the simulator on the world.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Fault,
    Launch { launcher: usize },
    StartRank { launcher: usize, launch: u64, rank: u32, start: Start },
    Start(Target),
    Resume { target: Target, life: u32 },
    Mend { from: usize, to: usize },
    SpeedUp { from: usize, to: usize },
}

#[derive(Debug)]
struct Scheduled {
    at_us: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.number) == (other.at_us, other.number)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// Orders by time, earliest first: the earliest is the greatest, because the queue is a max-heap.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at_us, other.number).cmp(&(self.at_us, self.number))
    }
}

pub(crate) struct World {
    pub(crate) now_us: u64,
    queue: BinaryHeap<Scheduled>,
    scheduled: u64,
    pub(crate) dice: Dice,
    pub(crate) scenario: Scenario,
    pub(crate) paths: Paths,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) next_conn: ConnId,
    pub(crate) coordinators: Vec<SimCoordinator>,
    /// The simulated etcd, if the state is in etcd.
    pub(crate) etcd: Option<SimEtcd>,
    pub(crate) state: DurableState,
    /// The coordinator that became the leader last, and its term.
    pub(crate) latest_leader: Option<usize>,
    pub(crate) latest_term: u64,
    pub(crate) led_since_us: u64,
    pub(crate) workers: Vec<SimWorker>,
    pub(crate) clients: Vec<SimClient>,
    pub(crate) admin: Admin,
    pub(crate) launchers: Vec<SimLauncher>,
    pub(crate) store: Store,
    pub(crate) oracle: Oracle,
    pub(crate) coverage: Coverage,
    pub(crate) is_calm: bool,
    /// When the calm phase began.
    pub(crate) calm_us: u64,
    /// The number of events since a launch last made progress.
    still_events: u64,
    /// Workers and coordinators that are not restarted in the calm phase.
    pub(crate) stay_away: Vec<Target>,
    failure: Option<String>,
    trace: Trace,
}

/// A hash of all events, and the printing of their lines.
struct Trace {
    hash: u64,
    line: String,
    is_shown: bool,
}

impl World {
    pub(crate) fn new(seed: u64, is_shown: bool) -> Self {
        let mut dice = Dice::new(seed);
        let scenario = Scenario::new(&mut dice);
        let hosts = scenario.workers + scenario.coordinators;
        Self {
            now_us: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            dice,
            paths: Paths::new(hosts),
            conns: BTreeMap::new(),
            next_conn: 0,
            coordinators: (scenario.workers..hosts).map(SimCoordinator::new).collect(),
            etcd: scenario.has_etcd.then(|| SimEtcd::new(scenario.coordinators)),
            state: DurableState::default(),
            latest_leader: None,
            latest_term: 0,
            led_since_us: 0,
            workers: (0..scenario.workers).map(SimWorker::new).collect(),
            clients: Vec::new(),
            admin: Admin::new(),
            launchers: scenario.runs.iter().map(|_| SimLauncher::default()).collect(),
            store: Store::default(),
            oracle: Oracle::new(scenario.config.liveness_ms),
            coverage: Coverage::default(),
            is_calm: false,
            calm_us: 0,
            still_events: 0,
            stay_away: Vec::new(),
            failure: None,
            trace: Trace { hash: 0xcbf2_9ce4_8422_2325, line: String::new(), is_shown },
            scenario,
        }
    }

    /// Runs the seed to its end; returns why it failed, if it did.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        if self.trace.is_shown {
            println!("{:#?}", self.scenario);
        }
        for coordinator in 0..self.coordinators.len() {
            self.start_coordinator(coordinator);
        }
        for worker in 0..self.workers.len() {
            self.start_worker(worker);
        }
        self.start_admin();
        for launcher in 0..self.launchers.len() {
            self.begin_run(launcher);
        }
        self.schedule(self.scenario.fault_gap_us, Event::World(Action::Fault));
        let end_us = self.scenario.end_us();
        while self.failure.is_none() && !self.is_over() {
            let Some(Scheduled { at_us, event, .. }) = self.queue.pop() else {
                self.fail("nothing is to happen any more".into());
                break;
            };
            self.now_us = at_us;
            self.still_events += 1;
            let still_us = if self.is_calm { self.still_us() } else { 0 };
            let is_still = self.still_events > STILL_EVENTS || (self.is_calm && still_us > STILL_US);
            if is_still || at_us > end_us {
                let status = self.status().map(|status| status.to_json());
                let what = if is_still { "no batch was taken" } else { "not done" };
                self.fail(format!(
                    "{what} for {} ms and {} events in calm; the coordinator has {status:?}",
                    still_us / 1_000,
                    self.still_events
                ));
                break;
            }
            self.dispatch(event);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.check_end(),
        }
    }

    /// Records progress of a run's current launch.
    pub(crate) fn progress(&mut self, launcher: usize) {
        self.launchers[launcher].progress_us = self.now_us;
        self.still_events = 0;
    }

    /// Returns for how long, in the calm phase, the slowest launch has made no progress. An election takes up to two
    /// leases; the time counts from its end.
    fn still_us(&self) -> u64 {
        let busy = self.launchers.iter().filter(|launcher| !launcher.is_done());
        busy.map(|launcher| self.now_us - launcher.progress_us.max(self.calm_us).max(self.led_since_us))
            .max()
            .unwrap_or(0)
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.trace.hash
    }

    /// Returns whether all ranks have ended, including those of older launches.
    fn is_over(&self) -> bool {
        self.is_calm
            && self.launchers.iter().all(SimLauncher::is_done)
            && self.clients.iter().all(|client| !client.process.is_alive())
            && self.workers.iter().all(|worker| worker.serves() == 0 || !worker.process.is_running())
    }

    /// Returns the status of the leading coordinator.
    fn status(&self) -> Option<spdl_control::coordinator::Status> {
        self.coordinators[self.latest_leader?].status()
    }

    fn check_end(&self) -> Result<(), String> {
        // Between two leaders there is none.
        let Some(status) = self.status() else {
            return if self.etcd.is_some() { Ok(()) } else { Err("the coordinator does not run".into()) };
        };
        if status.sessions.len() > self.launchers.len() * (spdl_control::coordinator::SUPERSEDED_SESSIONS + 1) {
            return Err(format!("{} sessions are remembered", status.sessions.len()));
        }
        if status.workers.len() > 2 * self.workers.len() {
            return Err(format!("{} workers are remembered", status.workers.len()));
        }
        Ok(())
    }

    pub(crate) fn dispatch(&mut self, event: Event) {
        match event {
            Event::Input { target, life, input } => {
                let process = self.process_mut(target);
                if process.life != life || !process.is_alive() {
                    return;
                }
                if process.running == Running::Stopped {
                    return process.held.push_back(Event::Input { target, life, input });
                }
                match target {
                    Target::Coordinator(at) => self.coordinator_input(at, input),
                    Target::Worker(worker) => self.worker_input(worker, input),
                    Target::Client(client) => self.client_input(client, input),
                    Target::Admin => self.admin_input(input),
                }
            }
            Event::Packet { conn, to, message } => self.on_packet(conn, to, message),
            Event::KeepAlive { conn } => self.on_keep_alive(conn),
            Event::Etcd { from, life, call, question } => self.etcd_receives(from, life, call, *question),
            Event::World(action) => self.act(action),
        }
    }

    fn act(&mut self, action: Action) {
        if self.trace.is_shown || !matches!(action, Action::Fault) {
            self.note(format_args!("{action:?}"));
        }
        match action {
            Action::Fault => self.next_fault(),
            Action::Launch { launcher } => self.launch(launcher),
            Action::StartRank { launcher, launch, rank, start } => self.start_rank(launcher, launch, rank, start),
            Action::Start(target) => {
                if !self.stays_away(target) {
                    self.start(target);
                }
            }
            Action::Resume { target, life } => {
                if !self.stays_away(target) {
                    self.resume(target, life);
                }
            }
            Action::Mend { from, to } => self.paths.mend(from, to),
            Action::SpeedUp { from, to } => self.paths.extra_us[from][to] = 0,
        }
    }

    fn stays_away(&self, target: Target) -> bool {
        self.stay_away.contains(&target)
    }

    pub(crate) fn schedule(&mut self, delay_us: u64, event: Event) {
        self.schedule_at(self.now_us + delay_us, event);
    }

    pub(crate) fn schedule_at(&mut self, at_us: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Scheduled { at_us, number: self.scheduled, event });
    }

    pub(crate) fn process(&self, target: Target) -> &SimProcess {
        match target {
            Target::Coordinator(at) => &self.coordinators[at].process,
            Target::Worker(worker) => &self.workers[worker].process,
            Target::Client(client) => &self.clients[client].process,
            Target::Admin => &self.admin.process,
        }
    }

    pub(crate) fn process_mut(&mut self, target: Target) -> &mut SimProcess {
        match target {
            Target::Coordinator(at) => &mut self.coordinators[at].process,
            Target::Worker(worker) => &mut self.workers[worker].process,
            Target::Client(client) => &mut self.clients[client].process,
            Target::Admin => &mut self.admin.process,
        }
    }

    /// Records a failure; only the first one counts.
    pub(crate) fn fail(&mut self, problem: String) {
        self.note(format_args!("WRONG: {problem}"));
        let at_ms = self.now_us / 1_000;
        self.failure.get_or_insert_with(|| format!("at {at_ms} ms: {problem}"));
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        let Trace { hash, line, is_shown } = &mut self.trace;
        line.clear();
        write!(line, "{:>12} {what}", self.now_us).expect("a string takes all");
        for byte in line.bytes() {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if *is_shown {
            println!("{line}");
        }
    }
}
