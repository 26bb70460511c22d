//! Reads the stand-in's settings from the environment.

use std::ops::RangeInclusive;

/// The settings in `CUDA_STAND_IN`.
#[derive(Debug)]
pub(crate) struct StandInSettings {
    pub(crate) devices: usize,
    pub(crate) memory: usize,
    pub(crate) delay_us: u64,
    pub(crate) seed: u64,
    pub(crate) failures: Vec<PlannedFailure>,
    pub(crate) lose_at_copy: Option<u64>,
    pub(crate) refuse_ptx: bool,
    pub(crate) staging_us: u64,
    pub(crate) has_pools: bool,
}

/// A fault: the calls of `name` with these numbers return `code`.
#[derive(Debug)]
pub(crate) struct PlannedFailure {
    pub(crate) name: String,
    pub(crate) at: RangeInclusive<u64>,
    pub(crate) code: u32,
}

impl StandInSettings {
    pub(crate) fn from_env() -> Self {
        Self::parse(&std::env::var("CUDA_STAND_IN").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut settings = Self {
            devices: 1,
            memory: 1 << 30,
            delay_us: 200,
            seed: 1,
            failures: Vec::new(),
            lose_at_copy: None,
            refuse_ptx: false,
            staging_us: 0,
            has_pools: true,
        };
        for (key, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("CUDA_STAND_IN: {key}={value}"));
            match key {
                "devices" => settings.devices = number() as usize,
                "memory" => settings.memory = number() as usize,
                "delay_us" => settings.delay_us = number(),
                "seed" => settings.seed = number(),
                "lose_at_copy" => settings.lose_at_copy = Some(number()),
                "refuse_ptx" => settings.refuse_ptx = number() != 0,
                "staging_us" => settings.staging_us = number(),
                "pools" => settings.has_pools = number() != 0,
                "fail" => settings.failures.push(PlannedFailure::parse(value)),
                other => panic!("CUDA_STAND_IN: no key `{other}`"),
            }
        }
        settings
    }
}

impl PlannedFailure {
    fn parse(text: &str) -> Self {
        let parts = text.split_once('@').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
        let (name, (at, code)) = parts.expect("CUDA_STAND_IN: fail=NAME@N:CODE");
        let first = at.trim_end_matches('+').parse().expect("a number");
        let last = if at.ends_with('+') { u64::MAX } else { first };
        Self { name: name.into(), at: first..=last, code: code.parse().expect("a number") }
    }
}
