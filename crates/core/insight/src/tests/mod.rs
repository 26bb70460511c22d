//! The diagnosis against simulated pipelines, whose limit and whose rate under a change are known.

mod limits;
mod predictions;
mod verdicts;

use spdl_types::mix::splitmix64;

use crate::{Diagnosis, Limit, diagnose, simulation::Simulation};

fn diagnosis(simulation: &Simulation, seed: u64) -> Diagnosis {
    let (rank, worker) = simulation.run(seed);
    diagnose(rank, Some(worker))
}

/// A number between two bounds, drawn evenly on a logarithmic scale.
fn draw(seed: u64, low: f64, high: f64) -> f64 {
    low * (high / low).powf(splitmix64(seed) as f64 / u64::MAX as f64)
}

/// Pipelines with one planted limit, which is smaller than all other terms by at least a fifth.
fn planted(limit: Limit, seed: u64) -> Simulation {
    let harshness = draw(seed, 1.25, 8.0);
    let base = Simulation {
        batch: draw(seed + 1, 8.0, 256.0) as usize,
        requests: draw(seed + 2, 8.0, 64.0) as usize,
        ..Simulation::default()
    };
    let step_s = base.step_s;
    // At rest, the others could do one and a half times the trainer's rate.
    let rest = Simulation {
        cpu_s: step_s * base.cores / base.batch as f64 / 1.5,
        latency_s: step_s * base.requests_in_flight as f64 / base.requests as f64 / 1.8,
        ..base
    };
    match limit {
        Limit::Trainer => rest,
        Limit::Cpu => Simulation { cores: draw(seed + 3, 0.3, 2.0), cpu_s: rest.cpu_s * 1.5 * harshness, ..rest },
        Limit::Function => {
            Simulation { call_s: step_s * 2.0 / rest.batch as f64 * harshness, cpu_s: rest.cpu_s * 0.2, ..rest }
        }
        Limit::StoreLatency => Simulation { latency_s: rest.latency_s * 1.8 * harshness, ..rest },
        Limit::StoreBandwidth => Simulation {
            latency_s: 0.002,
            bandwidth: rest.requests as f64 * rest.request_bytes / step_s / harshness,
            ..rest
        },
        other => unreachable!("{other} is not simulated"),
    }
}

const PLANTED: [Limit; 5] = [Limit::Trainer, Limit::Cpu, Limit::Function, Limit::StoreLatency, Limit::StoreBandwidth];
