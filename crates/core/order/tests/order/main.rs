//! The order of samples: which is frozen, what it guarantees for every dataset, and what it costs.

mod balance;
mod blend;
mod buckets;
mod delivery;
mod golden;
mod locality;
mod memory;
mod mix;
mod properties;
mod sampling;
mod stream;
mod twin;
mod view;
