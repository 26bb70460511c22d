//! Reads the stand-in's settings from the environment.

/// The settings in `CUDA_STAND_IN`.
#[derive(Debug)]
pub(crate) struct StandInSettings {
    pub(crate) devices: usize,
    pub(crate) memory: usize,
    pub(crate) delay_us: u64,
    pub(crate) seed: u64,
    pub(crate) failures: Vec<PlannedFailure>,
    pub(crate) lose_at_copy: Option<u64>,
}

/// A fault: the `at`-th call of `name` returns `code`.
#[derive(Debug)]
pub(crate) struct PlannedFailure {
    pub(crate) name: String,
    pub(crate) at: u64,
    pub(crate) code: u32,
}

impl StandInSettings {
    pub(crate) fn from_env() -> Self {
        Self::parse(&std::env::var("CUDA_STAND_IN").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut settings =
            Self { devices: 1, memory: 1 << 30, delay_us: 200, seed: 1, failures: Vec::new(), lose_at_copy: None };
        for (key, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("CUDA_STAND_IN: {key}={value}"));
            match key {
                "devices" => settings.devices = number() as usize,
                "memory" => settings.memory = number() as usize,
                "delay_us" => settings.delay_us = number(),
                "seed" => settings.seed = number(),
                "lose_at_copy" => settings.lose_at_copy = Some(number()),
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
        Self { name: name.into(), at: at.parse().expect("a number"), code: code.parse().expect("a number") }
    }
}
