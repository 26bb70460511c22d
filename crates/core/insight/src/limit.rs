//! The kinds of limits, and their names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Defines [`Limit`] with its names, so that a new kind is one line.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $limit:ident = $name:literal,)+) => {
        /// What limits a rank: a resource that it has too little of, or the cause of that.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Limit {
            $($(#[doc = $doc])+ $limit,)+
        }

        impl Limit {
            /// Every limit.
            pub const ALL: &'static [Self] = &[$(Self::$limit),+];

            /// Returns the name for metrics and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$limit => $name,)+
                }
            }
        }
    };
}

limits! {
    /// The trainer: batches are there before it asks for them.
    Trainer = "trainer",
    /// The CPU budget of its home, or what other processes of that node leave of it.
    Cpu = "cpu",
    /// Functions of the user's in Python.
    Function = "function",
    /// The time that a store takes until it answers, and the number of requests in flight.
    StoreLatency = "store_latency",
    /// The bytes per second of a store.
    StoreBandwidth = "store_bandwidth",
    /// The requests that a store fails.
    StoreErrors = "store_errors",
    /// One object of a store, which answers much later than all others.
    SlowObject = "slow_object",
    /// The store, as long as the caches that will hold the datasets are not full.
    ColdCache = "cold_cache",
    /// Samples that do not decode.
    BadSamples = "bad_samples",
    /// Samples of which some take far longer to decode than most.
    UnevenSamples = "uneven_samples",
    /// The network between its home and the trainer.
    Network = "network",
    /// The slots in which batches are handed over.
    HandOver = "hand_over",
    /// No worker serves the rank.
    NoWorker = "no_worker",
    /// The rank itself: nothing is heard of its process.
    Silent = "silent",
    /// The rank itself: a newer launch has taken its place.
    Superseded = "superseded",
}

impl Limit {
    /// Describes what limits once the limit before is gone.
    pub(super) const fn as_next(self) -> &'static str {
        match self {
            Self::Trainer => "the trainer sets the pace",
            Self::Cpu => "the CPU budget is the limit",
            Self::Function => "the functions of the job are the limit",
            Self::Network => "the network is the limit",
            Self::StoreLatency | Self::StoreBandwidth | Self::StoreErrors => "the store is the limit",
            _ => "the way to the trainer is the limit",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn the_name_of_a_limit_is_that_in_json() {
        for limit in Limit::ALL {
            assert_eq!(serde_json::to_string(limit).unwrap(), format!("\"{limit}\""));
        }
    }
}
