//! Pipelines: branches one by one, random ones against a sequential model, and what they allocate.

mod allocations;
mod branches;
mod random;
