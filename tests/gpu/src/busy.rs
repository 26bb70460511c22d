//! A kernel that keeps a device busy for a known time.

use std::time::Instant;

use crate::raw::{TrainerContext, TrainerStream};

/// The threads of a block of this kernel.
pub const THREADS: usize = 256;
/// More rounds than any device needs.
const MAX_ROUNDS: u64 = 1 << 40;
/// How often the number of rounds is adjusted, and how close to the wanted time is close enough.
const ADJUSTMENTS: usize = 8;
const TOLERANCE: f64 = 0.1;

/// A kernel that keeps the device busy for a known time.
#[derive(Debug)]
pub struct Burn<'a> {
    trainer: &'a TrainerContext,
    /// Memory for its results, a word for each thread; as input, it serves where no other is given.
    memory: u64,
    blocks: u32,
    rounds: u64,
}

impl<'a> Burn<'a> {
    /// Makes a kernel of `blocks` blocks that takes about `ms` milliseconds. One block leaves nearly all of the device
    /// to others.
    #[must_use]
    pub fn new(trainer: &'a TrainerContext, blocks: u32, ms: f64) -> Self {
        let memory = trainer.allocate(blocks.max(1) as usize * THREADS * 4);
        let mut burn = Self { trainer, memory, blocks, rounds: 16 };
        let _warm = burn.measure_ms();
        let mut taken_ms = burn.measure_ms();
        while taken_ms < ms / 4.0 && burn.rounds < MAX_ROUNDS {
            burn.rounds *= 4;
            taken_ms = burn.measure_ms();
        }
        // A device that was idle becomes faster while it works.
        for _ in 0..ADJUSTMENTS {
            burn.rounds = ((burn.rounds as f64 * ms / taken_ms) as u64).max(1);
            taken_ms = burn.measure_ms();
            if (taken_ms / ms - 1.0).abs() < TOLERANCE {
                break;
            }
        }
        burn
    }

    /// Returns how many milliseconds the kernel takes now, from its launch until the host knows that it is done.
    #[must_use]
    pub fn measure_ms(&self) -> f64 {
        let stream = self.trainer.stream();
        let start = Instant::now();
        self.put(stream);
        self.trainer.synchronise(stream);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        self.trainer.end(stream);
        ms
    }

    /// Queues the kernel.
    pub fn put(&self, stream: TrainerStream) {
        self.put_after_read(stream, self.memory);
    }

    /// Queues the kernel, each thread of which first reads a word at `from`.
    pub fn put_after_read(&self, stream: TrainerStream, from: u64) {
        self.trainer.burn(stream, self.blocks, from, self.rounds, self.memory);
    }
}

impl Drop for Burn<'_> {
    fn drop(&mut self) {
        self.trainer.free(self.memory);
    }
}
