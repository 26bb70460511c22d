//! A worker and a trainer, simulated: what the diagnosis would measure of them, and the rate that they would have.

use crate::{StoreStats, rates::StageRate};
use spdl_types::{Stage, mix::splitmix64};

use super::{RankWindow, WorkerWindow};

/// One rank's pipeline. Times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Simulation {
    pub(super) cores: f64,
    /// CPU time of decoding a sample.
    pub(super) cpu_s: f64,
    /// Time of a call of the user's function; 0 for none.
    pub(super) call_s: f64,
    pub(super) requests_in_flight: usize,
    pub(super) latency_s: f64,
    pub(super) request_bytes: f64,
    /// Bytes per second of the store.
    pub(super) bandwidth: f64,
    /// Requests for the samples of a batch that are in no cache.
    pub(super) requests: usize,
    pub(super) batch: usize,
    pub(super) slots: usize,
    /// Batches whose bytes are fetched ahead.
    pub(super) ahead: usize,
    pub(super) step_s: f64,
}

impl Default for Simulation {
    /// A pipeline whose trainer sets the pace, with half as much again of everything.
    fn default() -> Self {
        Self {
            cores: 2.0,
            cpu_s: 0.0012,
            call_s: 0.0,
            requests_in_flight: 32,
            latency_s: 0.01,
            request_bytes: 100e3,
            bandwidth: 1e9,
            requests: 32,
            batch: 32,
            slots: 4,
            ahead: 16,
            step_s: 0.03,
        }
    }
}

const WARM: usize = 60;
const BATCHES: usize = 120;

/// The times that units have become free again: the earliest takes the next item.
struct Units(Vec<f64>);

impl Units {
    fn new(count: usize) -> Self {
        Self(vec![0.0; count])
    }

    fn earliest(&mut self) -> &mut f64 {
        self.0.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there are units")
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    busy_s: f64,
    input_wait_s: f64,
    output_wait_s: f64,
    throttled_s: f64,
}

impl Simulation {
    /// Runs some batches, and returns what was measured after the first.
    pub(super) fn run(&self, seed: u64) -> (RankWindow, WorkerWindow) {
        let threads = self.cores.ceil().max(1.0) as usize;
        let pause = threads as f64 / self.cores - 1.0;
        let (mut decoding, mut calling) = (Units::new(threads), Units::new(threads));
        let mut fetching = Units::new(self.requests_in_flight);
        let (mut link, mut trainer, mut since) = (0.0, 0.0, 0.0);
        let mut freed: Vec<f64> = Vec::new();
        let (mut decode, mut call, mut fetch) = (Times::default(), Times::default(), Times::default());
        let (mut first_byte_s, mut waited_s, mut draws) = (0.0, 0.0, seed << 32);
        for number in 0..WARM + BATCHES {
            if number == WARM {
                (decode, call, fetch) = Default::default();
                (first_byte_s, waited_s, since) = (0.0, 0.0, trainer);
            }
            let after = |batches: usize| number.checked_sub(batches).map_or(0.0, |at| freed[at]);
            let (allowed, slot) = (after(self.ahead), after(self.slots));
            let mut ready = slot;
            for _ in 0..self.requests {
                let request = fetching.earliest();
                let start = request.max(allowed);
                link = f64::max(link, start + self.latency_s) + self.request_bytes / self.bandwidth;
                *request = link;
                fetch.busy_s += link - start;
                first_byte_s += self.latency_s;
                ready = f64::max(ready, link);
            }
            let mut done = ready;
            for _ in 0..self.batch {
                draws += 1;
                // Between half and one and a half of the mean.
                let cpu_s = self.cpu_s * (0.5 + splitmix64(draws) as f64 / u64::MAX as f64);
                let thread = decoding.earliest();
                let start = thread.max(ready);
                let blocked_s = (slot.min(start) - *thread).max(0.0);
                decode.output_wait_s += blocked_s;
                decode.input_wait_s += start - *thread - blocked_s;
                let mut end = start + cpu_s;
                if self.call_s > 0.0 {
                    let process = calling.earliest();
                    end = process.max(end) + self.call_s;
                    *process = end;
                    call.busy_s += self.call_s;
                }
                decode.busy_s += end - start;
                decode.throttled_s += cpu_s * pause;
                *thread = end + cpu_s * pause;
                done = f64::max(done, end);
            }
            waited_s += (done - trainer).max(0.0);
            trainer = f64::max(done, trainer) + self.step_s;
            freed.push(trainer);
        }
        let seconds = trainer - since;
        call.input_wait_s = threads as f64 * seconds - call.busy_s;
        fetch.output_wait_s = self.requests_in_flight as f64 * seconds - fetch.busy_s;
        let requests = (BATCHES * self.requests) as u64;
        let samples = (BATCHES * self.batch) as u64;
        let cores_used = samples as f64 * self.cpu_s / seconds;
        let rate = |stage, items: u64, bytes: f64, times: Times| StageRate {
            stage,
            items_per_s: items as f64 / seconds,
            bytes_per_s: bytes / seconds,
            failures_per_s: 0.0,
            busy: times.busy_s / seconds,
            input_wait: times.input_wait_s / seconds,
            output_wait: times.output_wait_s / seconds,
            throttled: times.throttled_s / seconds,
            cpu: 0.0,
        };
        let mut stages = vec![
            rate(Stage::Fetch, requests, requests as f64 * self.request_bytes, fetch),
            rate(Stage::Decode, samples, 0.0, decode),
        ];
        if self.call_s > 0.0 {
            stages.push(rate(Stage::Transform, samples, 0.0, call));
        }
        let first_byte_ns = (first_byte_s * 1e9) as u64;
        let store = StoreStats { requests, answers: requests, first_byte_ns, ..StoreStats::default() };
        let slots = self.slots as u32;
        let rank = RankWindow { seconds, samples, waited_s, slots, ..RankWindow::default() };
        let worker = WorkerWindow {
            name: "node-0".to_owned(),
            cores: self.cores,
            cores_used,
            stages,
            store_s: seconds,
            store,
            ..WorkerWindow::default()
        };
        (rank, worker)
    }
}
