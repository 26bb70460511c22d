//! The planted bottlenecks, and what the status has to say of each.

/// A bottleneck.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The limit that the status has to name for rank 0.
    pub(crate) limit: &'static str,
    /// What its verdict on the session has to contain.
    pub(crate) says: &'static str,
    /// The CPU budget and the memory of each worker. Each has a rank on its node, in this order.
    pub(crate) workers: &'static [(&'static str, &'static str)],
    pub(crate) pictures: Pictures,
    pub(crate) store: Store,
    pub(crate) trainer: Trainer,
    /// Seconds that a function of the job sleeps for each sample.
    pub(crate) function_s: Option<f64>,
    /// Keys of the job file.
    pub(crate) job: &'static str,
    pub(crate) trouble: Trouble,
}

/// The pictures of the dataset.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pictures {
    /// Of about the same size.
    Even,
    /// One in thirty is as large as fifty of the others.
    Uneven,
    /// Two of five are cut off.
    Bad,
}

/// How the store behaves.
#[derive(Clone, Copy)]
pub(crate) enum Store {
    Fast,
    Latency {
        ms: u64,
    },
    Bandwidth {
        bytes_per_s: u64,
    },
    /// One request in this many is answered with this status.
    Errors {
        one_in: u64,
        status: u16,
    },
    /// Requests for one shard take this long.
    OneSlowShard {
        ms: u64,
    },
}

/// What pulls the batches.
#[derive(Clone, Copy)]
pub(crate) struct Trainer {
    /// How many cores make the samples that each trainer takes; `None` for as many as it gets. So the case plants the same on a fast
    /// machine and on a slow one.
    pub(crate) cores: Option<f64>,
    pub(crate) slots: u32,
    /// Bytes per second of the network to a trainer on another node; `None` for a trainer on the worker's node.
    pub(crate) network: Option<u64>,
}

/// What happens in the middle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    WorkerStops,
    WorkerDies,
    TrainerStops,
    /// Another launch takes the run over.
    SecondLaunch,
    /// The dataset is read once before, so that the worker's memory holds it.
    WarmCache,
}

/// A memory that holds the dataset.
const LARGE: &str = "256MiB";
/// A memory that holds little of it.
const SMALL: &str = "16MiB";

const FAST: Trainer = Trainer { cores: None, slots: 4, network: None };
const BASE: Case = Case {
    name: "",
    limit: "",
    says: "",
    workers: &[("1", LARGE)],
    pictures: Pictures::Even,
    store: Store::Fast,
    trainer: FAST,
    function_s: None,
    job: "",
    trouble: Trouble::None,
};
/// One worker with one core, and a trainer that takes all that it makes.
pub(crate) const UNLIMITED: Case = BASE;
const LITTLE_MEMORY: Case = Case { workers: &[("1", SMALL)], ..BASE };

/// Returns a trainer that takes the samples that so many cores make.
const fn taking(cores: f64) -> Trainer {
    Trainer { cores: Some(cores), ..FAST }
}

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "trainer",
        limit: "trainer",
        says: "nothing to gain: the trainer sets the pace",
        trainer: taking(0.05),
        ..BASE
    },
    Case { name: "slow trainer", limit: "trainer", says: "cores fewer would do", trainer: taking(0.02), ..BASE },
    Case { name: "tenth of a core", limit: "cpu", says: "is short of CPU", workers: &[("0.1", LARGE)], ..BASE },
    Case { name: "half a core", limit: "cpu", says: "more cores would", workers: &[("0.5", LARGE)], ..BASE },
    Case {
        name: "one worker of two on a twentieth of the cores",
        limit: "cpu",
        says: "1 of 2 ranks wait, all of them for worker `node-0`",
        workers: &[("0.05", LARGE), ("1", LARGE)],
        trainer: taking(0.1),
        ..BASE
    },
    Case {
        name: "one worker of two on a quarter of the cores",
        limit: "cpu",
        says: "worker `node-0` is short of CPU",
        workers: &[("0.1", LARGE), ("0.4", LARGE)],
        trainer: taking(0.25),
        ..BASE
    },
    Case { name: "function of 20 ms", limit: "function", says: "(a call takes ", function_s: Some(0.02), ..BASE },
    Case { name: "function of 300 ms", limit: "function", says: "(a call takes ", function_s: Some(0.3), ..BASE },
    Case {
        name: "store latency of 300 ms",
        limit: "store_latency",
        says: "until the first byte",
        store: Store::Latency { ms: 300 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "store latency of 1 s",
        limit: "store_latency",
        says: "until the first byte",
        store: Store::Latency { ms: 1000 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "store of 1 MB/s",
        limit: "store_bandwidth",
        says: "MB/s and no more",
        store: Store::Bandwidth { bytes_per_s: 1_000_000 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "store of 4 MB/s",
        limit: "store_bandwidth",
        says: "MB/s and no more",
        store: Store::Bandwidth { bytes_per_s: 4_000_000 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "store that fails half",
        limit: "store_errors",
        says: "the store fails requests",
        store: Store::Errors { one_in: 2, status: 503 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "store that fails a tenth",
        limit: "store_errors",
        says: "the store fails requests",
        store: Store::Errors { one_in: 10, status: 500 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "one slow object",
        limit: "slow_object",
        says: ".tar` is slow",
        store: Store::OneSlowShard { ms: 2000 },
        ..LITTLE_MEMORY
    },
    Case {
        name: "cold cache",
        limit: "cold_cache",
        says: "is filling",
        store: Store::Bandwidth { bytes_per_s: 2_000_000 },
        ..BASE
    },
    Case {
        name: "warm cache",
        limit: "cpu",
        says: "a larger cache would give nothing",
        store: Store::Bandwidth { bytes_per_s: 2_000_000 },
        trouble: Trouble::WarmCache,
        ..BASE
    },
    Case {
        name: "bad samples",
        limit: "bad_samples",
        says: "decodes are bad",
        pictures: Pictures::Bad,
        job: "max_bad_fraction = 1.0\n",
        ..BASE
    },
    Case {
        name: "uneven samples",
        limit: "uneven_samples",
        says: "are uneven",
        workers: &[("0.2", LARGE)],
        pictures: Pictures::Uneven,
        trainer: Trainer { cores: Some(0.035), slots: 2, network: None },
        job: "global_batch = 4\n",
        ..BASE
    },
    Case {
        name: "one slot",
        limit: "hand_over",
        says: "it has 1 slot",
        trainer: Trainer { cores: Some(0.4), slots: 1, network: None },
        ..BASE
    },
    Case {
        name: "network of 400 kB/s",
        limit: "network",
        says: "the network takes ",
        trainer: Trainer { network: Some(400_000), ..FAST },
        ..BASE
    },
    Case {
        name: "stopped worker",
        limit: "no_worker",
        says: "no worker serves it",
        trouble: Trouble::WorkerStops,
        ..BASE
    },
    Case { name: "dead worker", limit: "no_worker", says: "no worker serves it", trouble: Trouble::WorkerDies, ..BASE },
    Case {
        name: "stopped trainer",
        limit: "silent",
        says: "its process is stopped",
        trainer: taking(0.05),
        trouble: Trouble::TrainerStops,
        ..BASE
    },
    Case {
        name: "second launch",
        limit: "superseded",
        says: "has taken its place",
        trainer: taking(0.05),
        trouble: Trouble::SecondLaunch,
        ..BASE
    },
];
