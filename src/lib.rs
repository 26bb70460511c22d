//! The in-process loader, and what `spdl-ctl` is made of.

pub mod pictures;
