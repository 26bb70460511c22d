//! One launch of the trainer: runs its ranks as processes from one checkpoint to the next, or until they are killed.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess};

use super::faults::{Faults, Random};

/// Nodes of the ranks: those of the workers, and one without a worker.
const NODES: [&str; 4] = ["node-0", "node-1", "elsewhere", "node-2"];
/// Interval at which the ranks and the clock are polled.
const LOOK: Duration = Duration::from_millis(10);

/// The parameters of a launch.
pub(super) struct LaunchParams<'a> {
    /// Number of the launch, from 1.
    pub(super) number: u64,
    pub(super) world: u32,
    /// Number of steps to the next checkpoint.
    pub(super) steps: u64,
    /// The state in the last checkpoint.
    pub(super) state: Option<&'a str>,
    /// Samples per second and rank.
    pub(super) rate: f64,
    /// Time after which one of its ranks is killed.
    pub(super) kill_after: Option<Duration>,
}

/// The end of a launch, with the traces of its ranks' deliveries.
pub(super) enum Ended {
    /// All ranks reached the next checkpoint.
    Checkpointed { reports: Vec<Value>, traces: Vec<PathBuf> },
    /// A rank was killed, and then the others were ended, as a launcher does.
    Killed { traces: Vec<PathBuf> },
}

/// A rank's process, its trace and the file of its messages.
struct RankRun {
    process: ServerProcess,
    trace: PathBuf,
    messages: PathBuf,
}

impl LaunchParams<'_> {
    /// Runs the launch while the faults occur.
    pub(super) fn run(&self, cluster: &mut Cluster, faults: &mut Faults, random: &mut Random) -> Ended {
        let started = Instant::now();
        let mut ranks: Vec<RankRun> = (0..self.world).map(|rank| self.start(cluster, rank)).collect();
        let traces = ranks.iter().map(|rank| rank.trace.clone()).collect();
        loop {
            faults.strike(cluster);
            if self.kill_after.is_some_and(|after| started.elapsed() >= after) {
                let victim = random.below(ranks.len() as u64) as usize;
                ranks[victim].process.kill();
                ranks.iter().for_each(|rank| rank.process.signal(Signal::TERM));
                for rank in &mut ranks {
                    rank.process.wait();
                }
                return Ended::Killed { traces };
            }
            if ranks.iter_mut().all(RankRun::has_ended) {
                break;
            }
            thread::sleep(LOOK);
        }
        Ended::Checkpointed { reports: ranks.into_iter().map(|rank| rank.process.finish()).collect(), traces }
    }

    fn start(&self, cluster: &Cluster, rank: u32) -> RankRun {
        let file = |kind: &str| cluster.path(format!("launch-{}-rank-{rank}.{kind}", self.number));
        let (trace, messages) = (file("jsonl"), file("log"));
        let mut pull = cluster.pull("chaos", rank, self.world, NODES[rank as usize], &[]);
        pull.args(["--steps", &self.steps.to_string(), "--rate", &self.rate.to_string()]);
        match self.state {
            Some(state) => pull.args(["--state", state]),
            None => pull.args(["--from", "0:0"]),
        };
        pull.arg("--trace").arg(&trace).stderr(File::create(&messages).expect("a file for messages"));
        RankRun { process: ServerProcess::spawn(&mut pull), trace, messages }
    }
}

impl RankRun {
    /// Whether the rank has ended.
    ///
    /// # Panics
    /// If the rank failed.
    fn has_ended(&mut self) -> bool {
        let Some(status) = self.process.child.try_wait().expect("the rank can be waited for") else { return false };
        assert!(status.success(), "a rank ended with {status}:\n{}", text_of(&self.messages));
        true
    }
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
