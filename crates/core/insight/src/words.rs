//! The words for each limit: what is short, what would help, and what limits next.

use crate::SlowObject;
use spdl_types::Stage;

use super::{
    Limit, RankWindow, WorkerWindow,
    cause::{crowded, is_saturated},
    connections::full_core,
    window::{item_s, megabytes},
};

/// Describes what is short, with numbers.
pub(super) fn subject(limit: Limit, rank: &RankWindow, worker: &WorkerWindow) -> String {
    let WorkerWindow { name, store, store_s, .. } = worker;
    match limit {
        Limit::Trainer => "the trainer sets the pace".to_owned(),
        Limit::Cpu => short_of_cpu(worker),
        Limit::Function => {
            let call_ms = 1e3 * worker.stage(&Stage::Transform).map_or(0.0, item_s);
            format!("the functions of the job are slow on worker `{name}` (a call takes {call_ms:.1} ms)")
        }
        Limit::StoreLatency => format!(
            "the store answers worker `{name}` late (a request takes {:.0} ms, {:.0} ms of it until the first byte, and {:.1} are in flight)",
            1e3 * worker.request_s(),
            1e3 * worker.first_byte_s(),
            worker.stage(&Stage::Fetch).map_or(0.0, |fetch| fetch.busy)
        ),
        Limit::StoreBandwidth => {
            format!("the store gives worker `{name}` {:.1} MB/s and no more", megabytes(worker.fetched_bytes_per_s()))
        }
        Limit::StoreErrors => {
            let dripped = match store.drips {
                0 => String::new(),
                drips => format!("; {drips} answers dripped, far slower than others, and were asked for again"),
            };
            let (faults, requests) = (worker.store_faults(), store.requests);
            format!("the store fails requests of worker `{name}` ({faults} of {requests} in {store_s:.0} s{dripped})")
        }
        Limit::SlowObject => worker.slow_object.as_ref().map_or_else(String::new, |slow| slow_object(name, slow)),
        Limit::ColdCache => cold_cache(worker),
        Limit::BadSamples => {
            let percent = 100.0 * worker.bad_fraction();
            format!("{percent:.0} % of the samples that worker `{name}` decodes are bad")
        }
        Limit::UnevenSamples => {
            let [median_ms, slow_ms] = worker.decode_ns.map(|ns| ns as f64 / 1e6);
            let stall = rank.stall.as_ref().filter(|stall| matches!(stall.stage, Stage::Decode | Stage::Transform));
            let now = stall.map_or_else(String::new, |stall| format!("; now it waits for {}", stall.waiting_for));
            format!(
                "the samples that worker `{name}` decodes are uneven (half take up to {median_ms:.1} ms, and one in a \
                 hundred more than {slow_ms:.0} ms{now})"
            )
        }
        Limit::Network => full_core(rank, worker).map_or_else(
            || {
                format!(
                    "the network takes {:.1} MB/s from worker `{name}` and no more",
                    megabytes(worker.sent_bytes_per_s())
                )
            },
            |core| core.subject(worker),
        ),
        Limit::HandOver if rank.slots == 1 => {
            format!("it has 1 slot, in which worker `{name}` can make no batch while the trainer holds one")
        }
        Limit::HandOver => format!("batches of worker `{name}` are done in time and reach the trainer late"),
        Limit::NoWorker | Limit::Silent | Limit::Superseded => "it takes no part".to_owned(),
    }
}

fn short_of_cpu(worker: &WorkerWindow) -> String {
    let WorkerWindow { name, cores, cores_used, .. } = worker;
    match crowded(worker) {
        Some(share) => format!(
            "worker `{name}` is short of CPU, as other processes of its machine take it, or a limit of its container \
             (decoding threads had a core for {:.0} % of their work)",
            100.0 * share
        ),
        None => format!(
            "worker `{name}` is short of CPU ({} of its {} cores are busy)",
            number(*cores_used),
            number(*cores)
        ),
    }
}

fn slow_object(worker: &str, slow: &SlowObject) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "`{}` is slow (a request of worker `{worker}` for it takes {:.0} ms, one for another object {:.1} ms)",
        slow.object,
        ms(slow.mean_ns),
        ms(slow.other_mean_ns)
    )
}

fn cold_cache(worker: &WorkerWindow) -> String {
    let cache = &worker.cache;
    let left_bytes = cache.dataset_bytes.saturating_sub(cache.used_bytes) as f64;
    let left_s = left_bytes / (worker.cache_growth_bytes as f64 / worker.store_s).max(1.0);
    format!(
        "the cache of worker `{}` is filling ({:.0} of {:.0} MB, {left_s:.0} s to go), and the store gives {:.1} MB/s",
        worker.name,
        megabytes(cache.used_bytes as f64),
        megabytes(cache.dataset_bytes as f64),
        megabytes(worker.fetched_bytes_per_s())
    )
}

/// Writes a number of cores with two digits.
fn number(cores: f64) -> String {
    if cores < 0.95 { format!("{cores:.2}") } else { format!("{cores:.1}") }
}

/// Describes what a limit needs for a rate that is `factor` times as high; `factor` is `None` if it is not known how
/// far the rate can rise.
pub(super) fn means(limit: Limit, factor: Option<f64>, worker: &WorkerWindow) -> String {
    let text = match limit {
        Limit::Trainer => "a faster trainer",
        Limit::Cpu if crowded(worker).is_some() => "a machine for itself",
        Limit::Cpu => {
            let Some(factor) = factor else { return "more cores".to_owned() };
            let cores = ((factor - 1.0) * worker.cores * 10.0).ceil().max(1.0) / 10.0;
            return format!("{cores:.1} more cores");
        }
        Limit::Function => "faster functions or more cores",
        Limit::StoreLatency if is_saturated(worker) && worker.is_short_of_transit() => "more memory",
        Limit::StoreLatency if is_saturated(worker) => "more requests in flight or a larger cache",
        Limit::StoreLatency => "reading further ahead or a larger cache",
        Limit::StoreBandwidth => "a faster store or a larger cache",
        Limit::StoreErrors => "a store without errors",
        Limit::SlowObject => "this object in a faster place",
        Limit::ColdCache => "a full cache or a faster store",
        Limit::BadSamples => "a dataset without bad samples",
        Limit::UnevenSamples => "more slots or smaller pictures",
        Limit::Network => "a faster network or a worker on the trainer's node",
        Limit::HandOver => "more slots or a worker on the trainer's node",
        Limit::NoWorker => "a worker with room",
        Limit::Silent | Limit::Superseded => "another launch",
    };
    text.to_owned()
}
