//! The cores that are wanted, from the heartbeats of workers and ranks whose load changes.

use std::collections::BTreeMap;

use crate::{
    coordinator::{
        ScaleStatus,
        testing::{heartbeat, job, join, worker},
        tests::world::CoordinatorWorld,
    },
    help::HelpReport,
    messages::{Join, RankHeartbeat, WorkerHeartbeat},
};
use spdl_types::{Stage, StageStats};

/// A core makes this many samples a second.
const SAMPLES_PER_CORE: f64 = 100.0;

/// A worker with one rank: what its budget, the store and the trainer allow, in cores and samples per second.
struct Pipeline {
    job: String,
    rank: u32,
    cores: f64,
    /// The cores of its helpers.
    lent: f64,
    store: f64,
    trainer: f64,
    worker: WorkerHeartbeat,
    session: u64,
    taken: f64,
    waited_ms: f64,
}

impl Pipeline {
    /// Passes a second and sends the heartbeats.
    fn step(&mut self, world: &mut CoordinatorWorld) {
        let cpu = SAMPLES_PER_CORE * self.cores;
        let rate = self.trainer.min(cpu + SAMPLES_PER_CORE * self.lent).min(self.store);
        let own = rate * self.cores / (self.cores + self.lent);
        let (busy, threads_ns) = (own / cpu, self.cores * 1e9);
        let [fetch, decode] = &mut self.worker.stages[..] else { unreachable!("two stages") };
        decode.items += own as u64;
        decode.busy_ns += (busy * threads_ns) as u64;
        let idle = ((1.0 - busy) * threads_ns) as u64;
        *if rate == self.store { &mut decode.input_wait_ns } else { &mut decode.output_wait_ns } += idle;
        fetch.items += rate as u64;
        fetch.busy_ns += (32e9 * rate / self.store) as u64;
        fetch.output_wait_ns += (32e9 * (1.0 - rate / self.store)) as u64;
        self.worker.uptime_ms += 1_000;
        self.worker.cpu_ns += (busy * threads_ns) as u64;
        self.taken += rate;
        self.waited_ms += 1e3 * (1.0 - rate / self.trainer);
        world.worker(self.worker.clone());
        // The offset counts the samples of both ranks, each of which takes the same number.
        let offset = (self.taken as u64 * 2).min(9_999);
        let heard = heartbeat(self.session, self.rank, 10 + u64::from(self.rank), offset);
        let epoch = spdl_types::Position::new(self.taken as u64 * 2 / 10_000, self.taken as u64 * 2 % 10_000);
        let heard =
            RankHeartbeat { job: self.job.clone(), acknowledged: epoch, waited_ms: self.waited_ms as u64, ..heard };
        world.heartbeat(heard).unwrap();
    }
}

/// Two ranks of a job, each with a worker of its own.
struct Load {
    world: CoordinatorWorld,
    pipelines: Vec<Pipeline>,
}

impl Load {
    /// Returns two ranks whose trainers take 200 samples a second, and whose workers have 4 cores each.
    fn new() -> Self {
        let mut load = Self { world: CoordinatorWorld::new(), pipelines: Vec::new() };
        load.add("j");
        load
    }

    fn add(&mut self, name: &str) {
        let first = self.pipelines.len() as u64;
        for rank in 0..2 {
            let id = first + u64::from(rank) + 1;
            let stages = vec![StageStats::new(Stage::Fetch), StageStats::new(Stage::Decode)];
            let worker = WorkerHeartbeat { stages, ..worker(id, &format!("node-{id}")) };
            self.world.worker(worker.clone());
            let join = join(rank, 2, 10 + u64::from(rank));
            let join = Join { job: name.to_owned(), run: name.to_owned(), node: worker.home.node.clone(), ..join };
            let session = self.world.join(join);
            let (cores, lent, store, trainer) = (4.0, 0.0, 10_000.0, 200.0);
            let (taken, waited_ms, job) = (0.0, 0.0, name.to_owned());
            self.pipelines.push(Pipeline { job, rank, cores, lent, store, trainer, worker, session, taken, waited_ms });
        }
    }

    fn set(&mut self, change: impl Fn(&mut Pipeline)) {
        self.pipelines.iter_mut().for_each(change);
    }

    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.world.pass_ms(1_000);
            for pipeline in &mut self.pipelines {
                pipeline.step(&mut self.world);
            }
        }
    }

    /// Passes five seconds, in which helpers send heartbeats, too. Gives each worker the cores of its helpers, and
    /// returns the helpers of each worker that has any.
    fn lend(&mut self, helpers: &[WorkerHeartbeat]) -> Vec<(String, Vec<String>)> {
        for _ in 0..5 {
            helpers.iter().for_each(|helper| drop(self.world.worker(helper.clone())));
            self.pass(1);
        }
        let helped = self.world.core.status().workers.into_iter().filter(|worker| !worker.helpers.is_empty());
        let helped: Vec<_> = helped.map(|worker| (worker.name, worker.helpers)).collect();
        for pipeline in &mut self.pipelines {
            let names = helped.iter().find(|(home, _)| *home == pipeline.worker.home.name);
            let is_its = |helper: &&WorkerHeartbeat| names.is_some_and(|(_, names)| names.contains(&helper.home.name));
            pipeline.lent = helpers.iter().filter(is_its).map(|helper| helper.cores).sum();
        }
        helped
    }

    fn scale(&self) -> ScaleStatus {
        self.world.core.status().scale
    }

    /// Returns the cores that are wanted after `seconds`.
    fn wanted_after(&mut self, seconds: u32) -> f64 {
        self.pass(seconds);
        self.scale().wanted_cores.expect("it is known")
    }
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.1 * expected.abs().max(1.0)
}

#[test]
fn the_signal_follows_the_trainers_and_not_the_store() {
    let mut load = Load::new();
    // Two ranks that take 200 samples a second of 10 ms need 2 cores each, and have 4.
    let idle = load.wanted_after(40);
    assert!(is_near(idle, 4.0 / 0.85 - 8.0), "{idle}: {:?}", load.scale());
    load.set(|pipeline| pipeline.trainer = 800.0);
    let busy = load.wanted_after(30);
    assert!(is_near(busy, 16.0 / 0.85 - 8.0), "{busy}: {:?}", load.scale());
    assert_eq!(load.scale().reason, "2 ranks need 18.8 cores to not wait for CPU, and the workers have 8.0");
    load.set(|pipeline| pipeline.store = 200.0);
    let starved = load.wanted_after(30);
    assert!(is_near(starved, idle), "{starved}: {:?}", load.scale());
    let otherwise: BTreeMap<_, _> = load.scale().demand.waiting_otherwise;
    assert_eq!(otherwise.values().sum::<u32>(), 2, "{otherwise:?}");
    load.set(|pipeline| (pipeline.store, pipeline.trainer) = (10_000.0, 20.0));
    let slow = load.wanted_after(30);
    assert!(is_near(slow, 0.4 / 0.85 - 8.0), "{slow}: {:?}", load.scale());
}

#[test]
fn the_needs_of_several_jobs_add_up_and_only_workers_without_a_socket_are_the_pool() {
    let mut load = Load::new();
    assert!(matches!(load.world.create(job("k")), crate::messages::FromCoordinator::Done));
    load.add("k");
    load.pipelines[3].worker.home.socket = Some("/run/spdl.sock".to_owned());
    load.set(|pipeline| pipeline.trainer = 300.0);
    let wanted = load.wanted_after(40);
    assert!(is_near(wanted, 12.0 / 0.85 - 16.0), "{wanted}: {:?}", load.scale());
    let scale = load.scale();
    assert_eq!((scale.worker_cores, scale.pool_cores, scale.demand.ranks), (16.0, 12.0, 4));
    assert_eq!(scale.wanted_pool_cores, Some(12.0 + wanted));
    load.pipelines[0].worker.draining = true;
    load.pass(1);
    assert_eq!(load.scale().worker_cores, 12.0, "a worker that drains is as good as gone");
}

#[test]
fn nothing_is_scaled_while_the_first_batches_are_made_or_ranks_have_just_moved() {
    let mut load = Load::new();
    load.set(|pipeline| pipeline.trainer = 4_000.0);
    load.pass(3);
    let early = load.scale();
    assert_eq!((early.wanted_cores, early.wanted_pool_cores), (None, None), "{early:?}");
    load.pass(12);
    let starting = load.scale();
    assert_eq!((starting.wanted_cores, starting.demand.measured_ranks), (Some(0.0), 0), "{starting:?}");
    assert_eq!(starting.reason, "2 ranks were not measured yet, so nothing changes");
    assert!(load.wanted_after(10) > 1.0, "{:?}", load.scale());
    load.set(|pipeline| pipeline.trainer = 20.0);
    assert!(load.wanted_after(30) < -1.0);
    // Its rank goes to the other worker.
    load.world.close(1);
    load.pipelines[0].worker = WorkerHeartbeat { stages: load.pipelines[0].worker.stages.clone(), ..worker(7, "far") };
    let moved = load.wanted_after(2);
    assert_eq!(moved, 0.0, "{:?}", load.scale());
}

#[test]
fn a_coordinator_that_was_restarted_wants_nothing_until_it_has_heard_from_all() {
    let mut load = Load::new();
    load.set(|pipeline| pipeline.trainer = 800.0);
    assert!(load.wanted_after(30) > 1.0);
    load.world.restart();
    assert_eq!(load.scale().wanted_cores, None);
    load.pass(10);
    assert_eq!(load.scale().wanted_cores, Some(0.0), "{:?}", load.scale());
    assert!(load.wanted_after(20) > 1.0, "{:?}", load.scale());
}

#[test]
fn ranks_that_left_need_nothing_and_ranks_without_any_worker_need_one() {
    let mut load = Load::new();
    load.pass(30);
    load.world.close(1);
    load.world.close(2);
    assert_eq!(load.scale().wanted_cores, Some(1.0), "{:?}", load.scale());
    assert_eq!(load.scale().wanted_pool_cores, Some(1.0));
    for rank in 0..2 {
        load.world.leave(heartbeat(1, rank, 10 + u64::from(rank), 0));
    }
    assert_eq!((load.scale().wanted_cores, load.scale().reason.as_str()), (Some(0.0), "no rank takes part"));
}

#[test]
fn a_home_that_lacks_cores_has_helpers_after_two_looks_until_it_needs_none_and_others_have_none() {
    let helper = |id| {
        let help = HelpReport { is_helper: true, is_helper_only: true, is_helped: true, ..HelpReport::default() };
        WorkerHeartbeat { help: Box::new(help), ..worker(id, "elsewhere") }
    };
    let helpers = [helper(8), helper(9)];
    let names = |ids: &[u64]| ids.iter().map(|id| format!("worker-{id}")).collect::<Vec<_>>();
    let mut load = Load::new();
    load.set(|pipeline| pipeline.worker.help.is_helped = true);
    (0..4).for_each(|_| assert_eq!(load.lend(&helpers), [], "each has more cores than it needs"));
    // It needs 9.4 cores, and has 4.
    load.pipelines[0].trainer = 800.0;
    let looks: Vec<_> = (0..2).map(|_| load.lend(&helpers)).collect();
    assert!(looks[1].iter().any(|(home, _)| home == "worker-1"), "{looks:?}");
    for _ in 0..8 {
        let helped = load.lend(&helpers);
        assert_eq!(
            helped,
            [("worker-1".to_owned(), names(&[8, 9]))],
            "it keeps them, though it does not wait any more"
        );
    }
    // One is gone, and comes back.
    load.world.pass_ms(1);
    for _ in 0..3 {
        assert!(load.lend(&helpers[..1]).iter().all(|(_, names)| names.len() <= 2));
    }
    assert_eq!(load.lend(&helpers[..1]), [("worker-1".to_owned(), names(&[8]))]);
    load.pipelines[0].trainer = 200.0;
    let after: Vec<_> = (0..6).map(|_| load.lend(&helpers)).collect();
    assert_eq!(after[5], [], "{after:?}");
}
